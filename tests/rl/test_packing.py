"""Micro-batches by a token budget: against all partitions of a few samples, and by what any plan must hold to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.errors import InputError
from nemotron_rl.rl.packing import partition, plan_micro_batches

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=24)


def fullest(lengths: list[int], bins: object) -> int:
    return max(sum(lengths[i] for i in one) for one in bins)  # type: ignore[attr-defined]


def best_fullest(lengths: list[int], count: int) -> int:
    """The smallest possible fullest bin, by trying every way to put the samples into up to `count` bins."""

    def place(index: int, sums: list[int]) -> int:
        if index == len(lengths):
            return max(sums)
        grown = [[*sums[:i], sums[i] + lengths[index], *sums[i + 1 :]] for i in range(len(sums))]
        opened = [[*sums, lengths[index]]] if len(sums) < count else []
        return min(place(index + 1, option) for option in grown + opened)

    return place(0, [])


@given(LENGTHS, st.integers(1, 4), st.integers(60, 200))
def test_a_plan_holds_every_sample_once_within_the_budget_in_equally_many_passes(
    lengths: list[int], ranks: int, budget: int
) -> None:
    lengths = lengths * ranks
    plan = plan_micro_batches(lengths, ranks, budget)
    assert len(plan.ranks) == ranks
    assert len({len(passes) for passes in plan.ranks}) == 1
    bins = [one for passes in plan.ranks for one in passes]
    assert sorted(i for one in bins for i in one) == list(range(len(lengths)))
    assert all(one for one in bins)
    assert fullest(lengths, bins) <= budget


@given(LENGTHS, st.integers(2, 4), st.integers(60, 200))
def test_ranks_are_balanced_in_every_pass_and_in_all(lengths: list[int], ranks: int, budget: int) -> None:
    lengths = lengths * ranks
    plan = plan_micro_batches(lengths, ranks, budget)
    tokens = [[sum(lengths[i] for i in one) for one in passes] for passes in plan.ranks]
    totals = [sum(passes) for passes in tokens]
    spreads = [max(sizes) - min(sizes) for sizes in zip(*tokens, strict=True)]
    assert max(totals) - min(totals) <= max(spreads)


@given(st.lists(st.integers(1, 30), min_size=2, max_size=7), st.integers(1, 3))
def test_the_partition_is_within_a_third_of_the_best_one(lengths: list[int], count: int) -> None:
    count = min(count, len(lengths))
    bins = partition(lengths, count)
    assert all(bins)
    assert 3 * fullest(lengths, bins) <= 4 * best_fullest(lengths, count)


@given(st.lists(st.integers(1, 30), min_size=2, max_size=7), st.integers(30, 90))
def test_there_are_no_more_passes_than_a_budget_a_third_smaller_needs_at_least(lengths: list[int], budget: int) -> None:
    passes = len(plan_micro_batches(lengths, 1, budget).ranks[0])
    enough = [n for n in range(1, len(lengths) + 1) if 4 * best_fullest(lengths, n) <= 3 * budget]
    assert passes <= min(enough, default=len(lengths))


def test_equal_samples_fill_the_budget() -> None:
    plan = plan_micro_batches([10] * 12, ranks=2, budget=30)
    assert [[len(one) for one in passes] for passes in plan.ranks] == [[3, 3], [3, 3]]


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([5, 101], "a sample of 101 tokens does not fit .* raise train.max_tokens_per_gpu"),
        ([5], "do not divide over 2"),
    ],
)
def test_what_cannot_be_planned_says_what_to_do(lengths: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_micro_batches(lengths, ranks=2, budget=100)
