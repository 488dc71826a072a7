"""Which samples go through the model together: micro-batches within a token budget, balanced over data-parallel ranks.

Pure: it sees lengths and returns indices. How the tokens of one micro-batch lie in memory is the trainer's business.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from nemotron_rl.errors import InputError

Bin = tuple[int, ...]
"""Indices of the samples of one micro-batch, ascending."""


@dataclass(frozen=True)
class MicroBatchPlan:
    """The micro-batches of every data-parallel rank; all ranks have equally many, as pipelines and experts need."""

    ranks: tuple[tuple[Bin, ...], ...]
    """`ranks[r][i]` is what rank r computes in its i-th pass."""


def plan_micro_batches(lengths: Sequence[int], ranks: int, budget: int) -> MicroBatchPlan:
    """Share samples of these lengths among ranks so that no micro-batch has more than `budget` tokens.

    As few passes as the greedy partition below allows. In each pass ranks get micro-batches of neighbouring sizes,
    because expert-parallel ranks wait for each other, and over all passes about the same number of tokens.

    Args:
        lengths: Tokens of each sample, as they are counted against the budget.
        ranks: Data-parallel ranks.
        budget: Largest number of tokens of a micro-batch.

    Raises:
        InputError: A sample is longer than the budget, or the samples do not divide evenly over the ranks.
    """
    if not lengths or len(lengths) % ranks:
        raise InputError(f"{len(lengths)} samples do not divide over {ranks} data-parallel ranks")
    if (longest := max(lengths)) > budget:
        raise InputError(
            f"a sample of {longest} tokens does not fit into micro-batches of {budget}; "
            f"raise train.max_tokens_per_gpu, or shorten prompts or rollout.sampling.max_new_tokens"
        )
    fewest = max(1, -(-sum(lengths) // (budget * ranks)))
    for passes in range(fewest, len(lengths) // ranks + 1):
        bins = partition(lengths, passes * ranks)
        if max(sum(lengths[i] for i in one) for one in bins) <= budget:
            return MicroBatchPlan(_spread(lengths, bins, ranks))
    raise AssertionError("one sample per micro-batch always fits")


def partition(lengths: Sequence[int], count: int) -> list[Bin]:
    """`count` bins, none empty, of nearly equal sums: the longest first, each into the bin that is emptiest.

    Graham, "Bounds on multiprocessing timing anomalies" (1969): the fullest bin holds at most 4/3 of the best possible.
    """
    bins: list[list[int]] = [[] for _ in range(count)]
    emptiest = [(0, 0, place) for place in range(count)]
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        tokens, samples, place = heapq.heappop(emptiest)
        bins[place].append(index)
        heapq.heappush(emptiest, (tokens + lengths[index], samples + 1, place))
    return [tuple(sorted(one)) for one in bins]


def _spread(lengths: Sequence[int], bins: Sequence[Bin], ranks: int) -> tuple[tuple[Bin, ...], ...]:
    """Bins by falling size, `ranks` of them in each pass; the rank with the fewest tokens so far gets the largest."""
    by_size = sorted(bins, key=lambda one: (-sum(lengths[i] for i in one), one))
    given: list[list[Bin]] = [[] for _ in range(ranks)]
    tokens = [0] * ranks
    for first in range(0, len(by_size), ranks):
        order = sorted(range(ranks), key=lambda rank: (tokens[rank], rank))
        for rank, one in zip(order, by_size[first : first + ranks], strict=True):
            given[rank].append(one)
            tokens[rank] += sum(lengths[i] for i in one)
    return tuple(tuple(passes) for passes in given)
