"""Advantages and the policy loss against loops."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nemotron_rl.config.rl import AlgorithmSettings
from nemotron_rl.rl.advantages.group_normalized import group_normalized
from nemotron_rl.rl.batch import TokenSequence, make_batch, token_weights
from nemotron_rl.rl.losses import policy_loss
from tests.oracles import grpo as oracle

REWARD = st.sampled_from([0.0, 0.25, 0.1, 1.0])


@given(st.lists(st.lists(REWARD, min_size=2, max_size=5), min_size=1, max_size=4), st.booleans())
def test_advantages_are_those_of_the_loop(rewards: list[list[float]], normalize: bool) -> None:
    flat = [r for group in rewards for r in group]
    groups = [index for index, group in enumerate(rewards) for _ in group]
    got = group_normalized(torch.tensor(flat, dtype=torch.float64), torch.tensor(groups), normalize)
    torch.testing.assert_close(got.tolist(), oracle.advantages(flat, groups, normalize), rtol=1e-9, atol=1e-9)


@given(REWARD, st.integers(2, 9))
def test_equal_rewards_give_exactly_zero(reward: float, size: int) -> None:
    assert not group_normalized(torch.full((size,), reward), torch.zeros(size, dtype=torch.long)).any()


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    seed=st.integers(0, 999),
    aggregation=st.sampled_from(["token", "sequence"]),
    high=st.sampled_from([0.2, 0.28, 1.0]),
)
def test_the_reduced_loss_is_that_of_the_loop(
    lengths: list[int], seed: int, aggregation: Literal["token", "sequence"], high: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    batch = make_batch([TokenSequence((1, 2), (3,) * length) for length in lengths], pad_token=0)
    new_BL, old_BL = (-3 * torch.rand(batch.tokens_BL.shape, generator=generator) for _ in range(2))
    advantage_B = torch.randn(len(lengths), generator=generator)
    algorithm = AlgorithmSettings(clip_low=0.2, clip_high=high, aggregation=aggregation)
    terms = policy_loss("grpo")(new_BL, old_BL, advantage_B[:, None] * batch.mask_BL, batch.mask_BL, algorithm)
    tokens = float(sum(lengths))
    weight_BL = token_weights(batch.mask_BL, aggregation, tokens, float(len(lengths)))
    got = float((terms.loss_BL * weight_BL).sum()) / tokens

    def rows(values_BL: torch.Tensor) -> list[list[float]]:
        return [values_BL[i, 2 : 2 + length].tolist() for i, length in enumerate(lengths)]

    want = oracle.loss(rows(new_BL), rows(old_BL), advantage_B.tolist(), 0.2, high, aggregation)
    assert got == pytest.approx(want, rel=1e-4, abs=1e-5)


def test_clip_higher_lets_good_tokens_grow_further_than_bad_ones_shrink() -> None:
    ratio = torch.tensor([[1.25, 1.35, 0.75]])
    algorithm = AlgorithmSettings(clip_low=0.2, clip_high=0.28)
    logprob = ratio.log().requires_grad_()
    terms = policy_loss("grpo")(
        logprob, torch.zeros(1, 3), torch.tensor([[1.0, 1.0, -1.0]]), torch.ones(1, 3), algorithm
    )
    terms.loss_BL.sum().backward()
    assert logprob.grad is not None
    assert (logprob.grad != 0).tolist() == [[True, False, False]]
    assert terms.means["train/clip_fraction"].tolist() == [[0.0, 1.0, 1.0]]
