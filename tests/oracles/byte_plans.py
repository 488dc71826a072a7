"""What a fetch plan does, one byte at a time."""

from __future__ import annotations

from collections.abc import Sequence

from nemotron_rl.checkpoint.ranged.plan import FetchPlan, Part

Byte = tuple[str, int]
"""File and place in it."""


def wanted(parts: Sequence[Part]) -> dict[Byte, Byte]:
    """Target byte -> source byte, as the parts ask for it."""
    return {(part.target, part.offset + i): (part.file, part.start + i) for part in parts for i in range(part.size)}


def delivered(plan: FetchPlan) -> dict[Byte, Byte]:
    """Target byte -> source byte, as the pieces deliver it; a byte that is delivered twice is an error."""
    found: dict[Byte, Byte] = {}
    for piece in plan.pieces:
        answer = [(piece.file, place) for place in range(piece.start, piece.stop)]
        for part in piece.parts:
            for i in range(part.size):
                assert (part.target, part.offset + i) not in found
                found[part.target, part.offset + i] = answer[part.start - piece.start + i]
    return found


def fetched(plan: FetchPlan) -> list[Byte]:
    """Every source byte that is fetched, as often as it is."""
    return [(piece.file, place) for piece in plan.pieces for place in range(piece.start, piece.stop)]
