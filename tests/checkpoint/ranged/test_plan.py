from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.checkpoint.ranged.plan import Part, plan_fetch
from tests.oracles import byte_plans


@st.composite
def part_lists(draw: st.DrawFn) -> list[Part]:
    """Parts of up to three files, without overlap, in any order; each target is filled without gaps."""
    found: list[Part] = []
    offset = 0
    for file in draw(st.lists(st.sampled_from("abc"), max_size=3, unique=True)):
        place = 0
        for gap, size in draw(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 40)), max_size=8)):
            found.append(Part(file, place + gap, size, "out", offset))
            place, offset = place + gap + size, offset + size
    return draw(st.permutations(found))


@given(parts=part_lists(), piece_bytes=st.integers(1, 50), waste=st.floats(0, 1), gap=st.integers(0, 12))
def test_a_plan_delivers_every_wanted_byte_once_and_stays_within_its_limits(
    parts: list[Part], piece_bytes: int, waste: float, gap: int
) -> None:
    plan = plan_fetch(parts, piece_bytes, waste, gap)
    assert byte_plans.delivered(plan) == byte_plans.wanted(parts)
    fetched = byte_plans.fetched(plan)
    assert len(fetched) == len(set(fetched)) == plan.fetched
    assert plan.needed == sum(part.size for part in parts)
    assert plan.fetched <= (1 + waste) * plan.needed
    assert all(0 < piece.fetched <= piece_bytes for piece in plan.pieces)
    assert all(b.start - a.stop <= gap for piece in plan.pieces for a, b in pairwise(piece.parts))
    assert [(piece.file, piece.start) for piece in plan.pieces] == sorted((p.file, p.start) for p in plan.pieces)


@given(parts=part_lists(), order=st.randoms(use_true_random=False))
def test_the_order_of_the_parts_does_not_matter(parts: list[Part], order: object) -> None:
    shuffled = sorted(parts, key=lambda part: (part.offset, part.size), reverse=True)
    assert plan_fetch(parts, 16, 0.5, 4) == plan_fetch(shuffled, 16, 0.5, 4)


@pytest.mark.parametrize(("waste", "pieces"), [(0.0, 3), (0.09, 3), (0.1, 2), (0.3, 1)])
def test_the_smallest_gaps_are_fetched_along_while_the_budget_lasts(waste: float, pieces: int) -> None:
    parts = [Part("a", 0, 4, "out", 0), Part("a", 6, 4, "out", 4), Part("a", 11, 2, "out", 8)]
    assert len(plan_fetch(parts, 100, waste, 10).pieces) == pieces


def test_neighbours_become_one_request_whatever_file_they_go_to() -> None:
    (piece,) = plan_fetch([Part("a", 5, 3, "two", 0), Part("a", 0, 5, "one", 7)]).pieces
    assert (piece.start, piece.stop, [part.target for part in piece.parts]) == (0, 8, ["one", "two"])


def test_nothing_wanted_is_nothing_fetched() -> None:
    plan = plan_fetch([Part("a", 3, 0, "out", 0)])
    assert (plan.pieces, plan.needed, plan.fetched, plan.files) == ((), 0, 0, 0)
