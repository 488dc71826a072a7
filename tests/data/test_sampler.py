"""Claims about the order of training prompts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.data.sampler import PromptSampler

sizes = {"n": st.integers(1, 30), "batch": st.integers(1, 40), "seed": st.integers(0, 99)}


@given(**sizes)
def test_every_epoch_visits_every_prompt_once(n, batch, seed):
    sampler = PromptSampler(n, batch, seed)
    drawn = [index for _ in range(3 * n) for index in sampler.next_batch()]
    for epoch in range(3):
        assert sorted(drawn[epoch * n : (epoch + 1) * n]) == list(range(n))


@given(**sizes, done=st.integers(0, 20))
def test_a_resumed_sampler_continues_exactly(n, batch, seed, done):
    sampler = PromptSampler(n, batch, seed)
    for _ in range(done):
        sampler.next_batch()
    resumed = PromptSampler(n, batch, seed, position=sampler.position)
    assert [resumed.next_batch() for _ in range(5)] == [sampler.next_batch() for _ in range(5)]


def test_orders_differ_between_epochs_and_seeds():
    first = PromptSampler(50, 50, 0)
    assert first.next_batch() != first.next_batch()
    assert PromptSampler(50, 50, 0).next_batch() != PromptSampler(50, 50, 1).next_batch()


def test_setting_the_position_of_a_used_sampler_rewinds_it():
    sampler = PromptSampler(7, 3, 0)
    batches = [sampler.next_batch() for _ in range(4)]
    sampler.position = 3
    assert sampler.next_batch() == batches[1]


@pytest.mark.parametrize("arguments", [(0, 1, 0), (1, 0, 0), (1, 1, 0, -1)])
def test_impossible_sizes_are_refused(arguments):
    with pytest.raises(ValueError, match="needs n >= 1"):
        PromptSampler(*arguments)


@given(**sizes, rounds=st.integers(1, 4))
def test_unseen_prompts_are_drawn_once_each(n, batch, seed, rounds):
    sampler = PromptSampler(n, batch, seed)
    seen = [sampler.at(position) for position in sampler.next_positions()]
    for _ in range(rounds):
        if not sampler.unseen_are_left(seen):
            with pytest.raises(ValueError, match="are fewer than"):
                sampler.next_unseen(seen)
            return
        fresh = [sampler.at(position) for position in sampler.next_unseen(seen)]
        assert len(set(fresh)) == batch
        assert not set(fresh) & set(seen)
        seen += fresh
