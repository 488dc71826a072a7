"""Rows of tensor-parallel shares against a parameter whose rows are numbered and then cut like megatron cuts it."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nemotron_rl.megatron.cuts import Rows, cut_heads, cut_segments

Named = list[tuple[str, int]]


def listed(rows: list[Rows]) -> Named:
    """(tensor, row) of each row of a rank's parameter."""
    places = [row.place for row in rows]
    assert places == list(accumulate((row.count for row in rows[:-1]), initial=0)), "rows are left out"
    return [(row.which, row.first + n) for row in rows for n in range(row.count)]


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.sampled_from([1, 2, 3, 4, 8]))
def test_heads(groups: int, queries: int, size: int, ranks: int) -> None:
    fused: Named = []
    for group in range(groups):
        fused += [("q", group * queries * size + row) for row in range(queries * size)]
        fused += [(which, group * size + row) for which in "kv" for row in range(size)]
    assume(len(fused) % ranks == 0)
    share = len(fused) // ranks
    for rank in range(ranks):
        assert listed(list(cut_heads(groups, queries, size, rank, ranks))) == fused[rank * share : (rank + 1) * share]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_segments(ranks: int) -> None:
    widths = [8, 8, 4, 4, 12]
    starts = [0, 8, 16, 20, 24]
    for rank in range(ranks):
        expected: Named = []
        for start, width in zip(starts, widths, strict=True):
            rows = range(start, start + width)
            expected += [("", row) for row in rows[rank * width // ranks : (rank + 1) * width // ranks]]
        assert listed(list(cut_segments(widths, rank, ranks))) == expected
