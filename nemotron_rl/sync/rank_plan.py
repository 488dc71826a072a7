"""One rank's part in a plan of pieces: what its engine reads in place, what it sends, what it gets. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from nemotron_rl.sync.resharding import Part, Piece, plan_pieces, plan_rounds


@dataclass(frozen=True)
class Round:
    """Pieces that cross ranks at one time."""

    outgoing: Sequence[Sequence[Piece]]
    """By the rank that gets them."""
    incoming: Sequence[Sequence[Piece]]
    """By the rank that they come from."""


@dataclass(frozen=True)
class RankPlan:
    """What one rank does in every push."""

    rank: int
    have: Sequence[Sequence[Part]]
    """By rank, what the trainer has."""
    want: Sequence[Sequence[Part]]
    """By rank, what the engine holds."""
    local: Sequence[Piece]
    """What the engine reads out of the trainer's own memory."""
    rounds: Sequence[Round]
    """The same number on every rank."""

    @classmethod
    def of(
        cls,
        rank: int,
        have: Sequence[Sequence[Part]],
        want: Sequence[Sequence[Part]],
        hosts: Sequence[str],
        round_bytes: int,
    ) -> Self:
        """The plan for one of the ranks; `round_bytes` bounds what a rank sends or gets at one time.

        Raises:
            PlanError: as `plan_pieces`, on every rank the same.
        """
        pieces = plan_pieces(have, want, hosts)
        rounds = [_of_rank(rank, one, len(have)) for one in plan_rounds(pieces, have, round_bytes)]
        local = [piece for piece in pieces if piece.local and piece.target == rank]
        return cls(rank, have, want, local, rounds)

    @cached_property
    def arriving(self) -> Sequence[Piece]:
        """Everything that makes up what this rank's engine holds."""
        return [*self.local, *(piece for one in self.rounds for pieces in one.incoming for piece in pieces)]

    def given_to(self, other: int) -> list[Piece]:
        """What this rank has that `other` holds, in the order in which they stand in its `arriving`."""
        own = self.local if other == self.rank else ()
        return [*own, *(piece for one in self.rounds for piece in one.outgoing[other])]

    def wanted(self, piece: Piece) -> Part:
        """What holds the piece in the end."""
        return self.want[piece.target][piece.want]

    def source(self, piece: Piece) -> Part:
        """What the piece is taken from."""
        return self.have[piece.source][piece.have]


def _of_rank(rank: int, pieces: Sequence[Piece], ranks: int) -> Round:
    outgoing: list[list[Piece]] = [[] for _ in range(ranks)]
    incoming: list[list[Piece]] = [[] for _ in range(ranks)]
    for piece in pieces:
        if piece.source == rank:
            outgoing[piece.target].append(piece)
        if piece.target == rank:
            incoming[piece.source].append(piece)
    return Round(outgoing, incoming)
