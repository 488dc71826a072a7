"""Buffers through which pieces of weights go from rank to rank, two on each side: one fills while the other is read."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nemotron_rl.sync.peers import Peers, Pending
from nemotron_rl.sync.placed import Placed
from nemotron_rl.sync.rank_plan import RankPlan
from nemotron_rl.sync.resharding import Piece, padded_bytes, piece_bytes

_PAIR = 2


class Staging:
    """Packs, sends and receives the rounds of a plan; made once, because an engine keeps views of the buffers."""

    def __init__(self, plan: RankPlan, views: Sequence[Placed], peers: Peers) -> None:
        self._plan, self._peers = plan, peers
        sizes = [(sum(self._lengths(r.outgoing)), sum(self._lengths(r.incoming))) for r in plan.rounds]
        device = views[0].view.device

        def pair(size: int) -> list[Tensor]:
            return [torch.empty(size, dtype=torch.uint8, device=device) for _ in range(min(_PAIR, len(plan.rounds)))]

        self._sent = pair(max((sent for sent, _ in sizes), default=0))
        self._got = pair(max((got for _, got in sizes), default=0))
        self._packing = [self._copies(index, views) for index in range(len(plan.rounds))]

    def start(self, index: int) -> Pending:
        """Pack a round and begin to exchange it. The round two before must have been received and read."""
        for targets, sources in self._packing[index].values():
            torch._foreach_copy_(targets, sources)
        one = self._plan.rounds[index]
        sent_bytes, got_bytes = self._lengths(one.outgoing), self._lengths(one.incoming)
        sent, got = self._sent[index % _PAIR][: sum(sent_bytes)], self._got[index % _PAIR][: sum(got_bytes)]
        return self._peers.exchange(sent, sent_bytes, got, got_bytes)

    def received(self, index: int) -> list[tuple[Piece, Tensor]]:
        """The pieces that a round brought, in the order of the plan, as views of a buffer."""
        return self._laid_out(self._plan.rounds[index].incoming, self._got[index % _PAIR])

    def _copies(self, index: int, views: Sequence[Placed]) -> dict[torch.dtype, tuple[list[Tensor], list[Tensor]]]:
        """By type the places in the sending buffer and what goes there."""
        copies: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
        for piece, place in self._laid_out(self._plan.rounds[index].outgoing, self._sent[index % _PAIR]):
            targets, sources = copies.setdefault(place.dtype, ([], []))
            targets.append(place)
            sources.append(views[piece.have].of(piece.box))
        return copies

    def _laid_out(self, pieces: Sequence[Sequence[Piece]], buffer: Tensor) -> list[tuple[Piece, Tensor]]:
        """One piece behind the other, rank by rank; both sides lay them out like this."""
        found = []
        start = 0
        for piece in (piece for of_rank in pieces for piece in of_rank):
            nbytes = piece_bytes(piece, self._plan.have)
            dtype: torch.dtype = getattr(torch, self._plan.source(piece).dtype)
            found.append((piece, buffer[start : start + nbytes].view(dtype).view(piece.box.size)))
            start += padded_bytes(piece, self._plan.have)
        return found

    def _lengths(self, pieces: Sequence[Sequence[Piece]]) -> list[int]:
        """Bytes by rank."""
        return [sum(padded_bytes(piece, self._plan.have) for piece in of_rank) for of_rank in pieces]
