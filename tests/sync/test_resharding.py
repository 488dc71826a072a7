"""Plans of a sync against an oracle that moves single elements."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.sync.box import Box, bounding
from nemotron_rl.sync.resharding import ITEM_BYTES, Part, Piece, PlanError, padded_bytes, plan_pieces, plan_rounds
from tests.oracles.resharding import carried_out

Sides = tuple[list[list[Part]], list[list[Part]], list[str]]


@st.composite
def cuts(draw: st.DrawFn, shape: tuple[int, ...]) -> list[Box]:
    """Boxes that tile a tensor, cut like a grid."""
    axes = []
    for size in shape:
        inner = sorted(draw(st.sets(st.integers(1, size - 1), max_size=2))) if size > 1 else []
        edges = [0, *inner, size]
        axes.append(list(pairwise(edges)))
    return [Box(tuple(a for a, _ in ranges), tuple(b - a for a, b in ranges)) for ranges in product(*axes)]


@st.composite
def sides(draw: st.DrawFn) -> Sides:
    """Tensors spread over ranks, each box on one or more of them; some engine ranks want boxes of another cut."""
    ranks = draw(st.integers(1, 4))
    have: list[list[Part]] = [[] for _ in range(ranks)]
    want: list[list[Part]] = [[] for _ in range(ranks)]
    for number in range(draw(st.integers(1, 4))):
        shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
        dtype = draw(st.sampled_from(sorted(ITEM_BYTES)))
        for side, boxes in ((have, draw(cuts(shape))), (want, draw(cuts(shape)))):
            for box in boxes:
                for rank in draw(st.sets(st.integers(0, ranks - 1), min_size=1)):
                    side[rank].append(Part(f"t{number}", box, dtype))
    return have, want, [draw(st.sampled_from("ab")) for _ in range(ranks)]


@given(sides())
def test_every_wanted_element_arrives_once_and_is_the_right_one(given_sides: Sides) -> None:
    have, want, hosts = given_sides
    pieces = plan_pieces(have, want, hosts)
    assert carried_out(pieces, have, want)
    for piece in pieces:
        copies = [rank for rank, parts in enumerate(have) if have[piece.source][piece.have] in parts]
        if piece.target in copies:
            assert piece.local, "a piece left another rank although its own has it"
        elif any(hosts[rank] == hosts[piece.target] for rank in copies):
            assert hosts[piece.source] == hosts[piece.target], "a piece came from another host"


@given(sides(), st.integers(16, 200))
def test_rounds_send_each_element_that_leaves_its_rank_once_within_the_limit(given_sides: Sides, limit: int) -> None:
    have, want, hosts = given_sides
    pieces = plan_pieces(have, want, hosts)
    rounds = plan_rounds(pieces, have, limit)
    sent = [piece for pieces in rounds for piece in pieces]
    assert carried_out([*(piece for piece in pieces if piece.local), *sent], have, want)
    assert all(rounds)
    for one in rounds:
        ends: Counter[tuple[str, int]] = Counter()
        for piece in one:
            assert not piece.local
            ends["sends", piece.source] += padded_bytes(piece, have)
            ends["gets", piece.target] += padded_bytes(piece, have)
        assert max(ends.values()) <= limit


def test_what_is_taken_from_copies_is_spread_over_them() -> None:
    box = Box.whole((4,))
    have = [[Part(f"t{n}", box, "float32") for n in range(12)] for _ in range(3)] + [[]]
    want: list[list[Part]] = [[], [], [], have[0]]
    pieces = plan_pieces(have, want, ["a", "a", "a", "a"])
    assert Counter(piece.source for piece in pieces) == {0: 4, 1: 4, 2: 4}


def part(name: str, start: tuple[int, ...], size: tuple[int, ...]) -> Part:
    return Part(name, Box(start, size), "float32")


@pytest.mark.parametrize(
    ("have", "want", "message"),
    [
        ([part("x", (0,), (2,))], [part("y", (0,), (2,))], "1 tensors have no place in the engine; the first is x"),
        ([], [part("y", (0,), (2,))], "are held but were not sent; the first is y"),
        ([part("x", (0,), (2,))], [part("x", (0,), (3,))], r"x has shape \(2,\), held as \(3,\)"),
        ([part("x", (0,), (2,))], [part("x", (0, 0), (2, 1))], "x has 1 dimensions, held with 2"),
        ([part("x", (0,), (2,)), part("x", (1,), (2,))], [part("x", (0,), (3,))], "x is there twice"),
        ([part("x", (0,), (1,)), part("x", (2,), (1,))], [part("x", (0,), (3,))], "not all of it is there"),
    ],
)
def test_tensors_that_do_not_fit_are_named(have: list[Part], want: list[Part], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan_pieces([have], [want], ["a"])


def test_the_mtp_head_may_have_no_place_in_the_engine() -> None:
    x, mtp = part("x", (0,), (2,)), part("mtp.layers.0.norm.weight", (0,), (2,))
    assert plan_pieces([[mtp, x]], [[x]], ["a"]) == [Piece("x", x.box, 0, 1, 0, 0)]


@given(st.lists(st.integers(1, 6), min_size=0, max_size=3), st.integers(1, 40))
def test_a_cut_box_is_the_same_elements_in_the_same_order(shape: list[int], numel: int) -> None:
    tensor = torch.arange(Box.whole(shape).numel).reshape(shape)
    parts = list(Box.whole(shape).cut(numel))
    assert torch.equal(torch.cat([box.of(tensor).reshape(-1) for box in parts]), tensor.reshape(-1))
    assert all(box.numel <= numel for box in parts)
    assert bounding(parts) == tuple(shape)
