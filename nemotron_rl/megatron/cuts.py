"""Which rows of which checkpoint tensor the rows of a tensor-parallel rank's parameter are. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class Rows:
    """Consecutive rows of a parameter that are consecutive rows of a checkpoint tensor."""

    which: str
    """The checkpoint tensor among those that the parameter is made of."""
    first: int
    """First row in the checkpoint's tensor."""
    place: int
    """First row in the rank's parameter."""
    count: int


def cut_segments(widths: Sequence[int], rank: int, ranks: int) -> Iterator[Rows]:
    """Segments of one checkpoint tensor of these widths, of each of which every rank has an equal share."""
    place = 0
    for first, width in zip(accumulate(widths, initial=0), widths, strict=False):
        count = width // ranks
        yield Rows("", first + rank * count, place, count)
        place += count


def cut_heads(groups: int, queries: int, head_size: int, rank: int, ranks: int) -> Iterator[Rows]:
    """Query, key and value rows, `q`, `k` and `v`, of a fused parameter.

    Megatron interleaves them: each of the KV `groups` has its `queries` query heads, then its key and its value head.
    Ranks have equal shares of the rows, so that with more ranks than groups the cut goes through a group.
    """
    count = groups * (queries + 2) * head_size // ranks
    begin, end = rank * count, (rank + 1) * count
    start = 0
    for group in range(groups):
        for which, heads in (("q", queries), ("k", 1), ("v", 1)):
            stop = start + heads * head_size
            first, last = max(start, begin), min(stop, end)
            if first < last:
                yield Rows(which, group * heads * head_size + first - start, first - begin, last - first)
            start = stop
