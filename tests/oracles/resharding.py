"""What a plan of pieces does, element by element."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from nemotron_rl.sync.box import Box
from nemotron_rl.sync.resharding import Part, Piece

Element = tuple[str, tuple[int, ...]]


def carried_out(pieces: Sequence[Piece], have: Sequence[Sequence[Part]], want: Sequence[Sequence[Part]]) -> bool:
    """Whether each wanted element is given exactly once, from a part that has it to the part that wants it."""
    given: list[tuple[int, int, Element]] = []
    for piece in pieces:
        source, target = have[piece.source][piece.have], want[piece.target][piece.want]
        for element in elements(piece.name, piece.box):
            if element not in elements(source.name, source.box) or element not in elements(target.name, target.box):
                return False
            given.append((piece.target, piece.want, element))
    wanted = [
        (rank, place, element)
        for rank, parts in enumerate(want)
        for place, part in enumerate(parts)
        for element in elements(part.name, part.box)
    ]
    return sorted(given) == sorted(wanted)


def elements(name: str, box: Box) -> set[Element]:
    """The tensor's places in the box."""
    ranges = [range(start, start + size) for start, size in zip(box.start, box.size, strict=True)]
    return {(name, index) for index in product(*ranges)}
