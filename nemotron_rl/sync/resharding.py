"""Who gives which part of a weight to whom: from the boxes that trainer ranks have to those that engine ranks hold.

Every rank computes the same plan from the same descriptions, so nothing about it is ever sent. Pure: imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from nemotron_rl.sync.box import Box, bounding

MTP = "mtp."
"""How the names of the MTP head's tensors begin; an engine that drafts nothing holds none of them."""


@dataclass(frozen=True, slots=True)
class Part:
    """A box of a checkpoint tensor in one rank's memory."""

    name: str
    """The checkpoint's tensor."""
    box: Box
    dtype: str
    """torch's name of the type in that memory."""
    transform: str = "same"
    """What is held there instead of the tensor itself; see `held.Held`."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one rank's memory gives to one engine rank's."""

    name: str
    box: Box
    """Of the checkpoint's tensor."""
    source: int
    """The rank that has it."""
    have: int
    """Place among the source's parts."""
    target: int
    """The rank whose engine holds it."""
    want: int
    """Place among the target's parts."""

    @property
    def local(self) -> bool:
        """Whether it never leaves its rank."""
        return self.source == self.target


class PlanError(Exception):
    """The trainer's tensors are not those of the engine. Says which and how."""


def plan_pieces(have: Sequence[Sequence[Part]], want: Sequence[Sequence[Part]], hosts: Sequence[str]) -> list[Piece]:
    """For each part that a rank wants, the pieces that make it up.

    A piece comes from its own rank where that has it, else from the same host, else from where least was taken so far.

    Args:
        have: Parts by rank. A tensor is cut alike wherever it is; equal boxes are copies of each other.
        want: Parts by rank.
        hosts: Each rank's host.

    Returns:
        Pieces by target rank, in the order of its parts.

    Raises:
        PlanError: A tensor is unknown, missing, has another shape, overlaps itself, or is not there in whole.
    """
    found = _by_name(have)
    _check_names(found, want)
    _check_shapes(found, want)
    taken = [0] * len(have)
    pieces: list[Piece] = []
    for target, parts in enumerate(want):
        for place, part in enumerate(parts):
            made = list(_made_up(part, place, target, found[part.name], hosts, taken))
            if sum(piece.box.numel for piece in made) != part.box.numel:
                raise PlanError(
                    f"{part.name} is wanted from {part.box.start} to {part.box.stop}, not all of it is there"
                )
            pieces += made
    return pieces


def plan_rounds(pieces: Iterable[Piece], have: Sequence[Sequence[Part]], limit: int) -> list[list[Piece]]:
    """The pieces that leave their rank, cut and put into rounds in which no rank sends or gets more than `limit` bytes.

    Pieces of each pair of ranks keep their order. A single element may be larger than `limit`.
    """
    rounds: list[list[Piece]] = []
    used: list[dict[tuple[str, int], int]] = []
    first_open: dict[tuple[int, int], int] = {}
    for piece in _cut(pieces, have, limit):
        nbytes = padded_bytes(piece, have)
        ends = ("sends", piece.source), ("gets", piece.target)
        at = first_open.get((piece.source, piece.target), 0)
        while at < len(rounds) and any(used[at].get(end, 0) + nbytes > limit for end in ends):
            at += 1
        if at == len(rounds):
            rounds.append([])
            used.append({})
        rounds[at].append(piece)
        first_open[piece.source, piece.target] = at
        for end in ends:
            used[at][end] = used[at].get(end, 0) + nbytes
    return rounds


ALIGNMENT = 16
"""Bytes to whose multiples a piece is padded in a message, so that every type can be read where it lies."""

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}


def piece_bytes(piece: Piece, have: Sequence[Sequence[Part]]) -> int:
    """Bytes of a piece in its source's type."""
    return piece.box.numel * ITEM_BYTES[have[piece.source][piece.have].dtype]


def padded_bytes(piece: Piece, have: Sequence[Sequence[Part]]) -> int:
    """The same with padding."""
    return -(-piece_bytes(piece, have) // ALIGNMENT) * ALIGNMENT


def _by_name(have: Sequence[Sequence[Part]]) -> dict[str, dict[Box, list[tuple[int, int]]]]:
    """By tensor and box the (rank, place) where it is."""
    found: dict[str, dict[Box, list[tuple[int, int]]]] = {}
    for rank, parts in enumerate(have):
        for place, part in enumerate(parts):
            found.setdefault(part.name, {}).setdefault(part.box, []).append((rank, place))
    return found


def _check_names(found: Mapping[str, object], want: Sequence[Sequence[Part]]) -> None:
    wanted = {part.name for parts in want for part in parts}
    unheld = {name for name in found.keys() - wanted if not name.startswith(MTP)}
    for names, what in ((unheld, "have no place in the engine"), (wanted - found.keys(), "are held but were not sent")):
        if names:
            raise PlanError(f"{len(names)} tensors {what}; the first is {min(names)}")


def _check_shapes(found: Mapping[str, Mapping[Box, object]], want: Sequence[Sequence[Part]]) -> None:
    wanted: dict[str, set[Box]] = {}
    for parts in want:
        for part in parts:
            wanted.setdefault(part.name, set()).add(part.box)
    for name, boxes in wanted.items():
        if len({len(box.size) for box in (*boxes, *found[name])}) > 1:
            some, other = next(iter(found[name])), next(iter(boxes))
            raise PlanError(f"{name} has {len(some.size)} dimensions, held with {len(other.size)}")
        ours, theirs = bounding(found[name]), bounding(boxes)
        if ours != theirs:
            raise PlanError(f"{name} has shape {ours}, held as {theirs}")
        for one, other in combinations(sorted(found[name]), 2):
            if one.overlap(other):
                raise PlanError(f"{name} is there twice: from {one.start} on and from {other.start} on")


def _made_up(
    part: Part,
    place: int,
    target: int,
    found: Mapping[Box, Sequence[tuple[int, int]]],
    hosts: Sequence[str],
    taken: list[int],
) -> Iterator[Piece]:
    for box, copies in found.items():
        overlap = box.overlap(part.box)
        if overlap is None:
            continue
        costs = [(rank != target, hosts[rank] != hosts[target], taken[rank], rank, have) for rank, have in copies]
        elsewhere, _, _, source, have = min(costs)
        if elsewhere:
            taken[source] += overlap.numel
        yield Piece(part.name, overlap, source, have, target, place)


def _cut(pieces: Iterable[Piece], have: Sequence[Sequence[Part]], limit: int) -> Iterator[Piece]:
    for piece in pieces:
        if piece.local:
            continue
        numel = max(1, limit // ITEM_BYTES[have[piece.source][piece.have].dtype])
        for box in piece.box.cut(numel):
            yield Piece(piece.name, box, piece.source, piece.have, piece.target, piece.want)
