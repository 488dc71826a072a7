"""Digests of what engines should hold, taken of the trainer's memory piece by piece."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from nemotron_rl.ops.digest import Digester, digests
from nemotron_rl.rollout.sglang.held import as_held
from nemotron_rl.sync.box import Box
from nemotron_rl.sync.peers import Peers
from nemotron_rl.sync.placed import Placed, dtype_name
from nemotron_rl.sync.rank_plan import RankPlan
from nemotron_rl.sync.resharding import Part, Piece

_DIGEST_BYTES = 8


class DigestsOfViews:
    """Digests of the parameters themselves; each rank takes those of what it has and gives them to whom they concern.

    Most pieces are held bit for bit and digested where they lie. Others are converted first, and one that goes to
    several ranks is digested once.
    """

    def __init__(self, plan: RankPlan, views: Sequence[Placed], peers: Peers) -> None:
        self._plan, self._peers = plan, peers
        found: dict[tuple[int, Box, str, str], int] = {}
        self._sources: list[tuple[Tensor, Part]] = []
        self._numbers: list[list[int]] = []
        for other in range(peers.size):
            self._numbers.append([self._number(piece, views, found) for piece in plan.given_to(other)])
        same = [part.transform == "same" and dtype_name(view) == part.dtype for view, part in self._sources]
        self._in_place = [number for number, is_same in enumerate(same) if is_same]
        self._converted = [number for number, is_same in enumerate(same) if not is_same]
        self._digester = Digester([self._sources[number][0] for number in self._in_place])

    def run(self) -> list[int]:
        """One for each piece of the plan's `arriving`; a collective call."""
        device = self._sources[0][0].device if self._sources else torch.device("cpu")
        found_N = torch.empty(len(self._sources), dtype=torch.int64, device=device)
        if self._in_place:
            found_N[self._in_place] = self._digester.run()
        if self._converted:
            found_N[self._converted] = digests([as_wanted(*self._sources[number]) for number in self._converted])
        return self._exchanged(found_N)

    def _number(self, piece: Piece, views: Sequence[Placed], found: dict[tuple[int, Box, str, str], int]) -> int:
        wanted = self._plan.wanted(piece)
        key = piece.have, piece.box, wanted.dtype, wanted.transform
        if key not in found:
            found[key] = len(self._sources)
            self._sources.append((views[piece.have].of(piece.box), wanted))
        return found[key]

    def _exchanged(self, found_N: Tensor) -> list[int]:
        """What this rank's engine should have, from all ranks, in the order of `arriving`."""
        plan, rank = self._plan, self._plan.rank
        sent_N = torch.cat([found_N[numbers] for numbers in self._numbers])
        by_source = [[p for one in plan.rounds for p in one.incoming[other]] for other in range(self._peers.size)]
        by_source[rank] = list(plan.local)
        counts = [len(pieces) for pieces in by_source]
        got_N = torch.empty(sum(counts), dtype=torch.int64, device=found_N.device)
        bytes_sent = [_DIGEST_BYTES * len(numbers) for numbers in self._numbers]
        bytes_got = [_DIGEST_BYTES * count for count in counts]
        self._peers.exchange(sent_N.view(torch.uint8), bytes_sent, got_N.view(torch.uint8), bytes_got).wait()
        values = iter(got_N.tolist())
        found = {piece: next(values) for pieces in by_source for piece in pieces}
        return [found[piece] for piece in plan.arriving]


def digests_of_export(plan: RankPlan, weights: Iterable[tuple[str, Tensor]]) -> list[int | None]:
    """The same of full tensors, which come one by one and are valid until the next; None where one did not come."""
    by_name: dict[str, list[int]] = {}
    for number, piece in enumerate(plan.arriving):
        by_name.setdefault(piece.name, []).append(number)
    found: list[int | None] = [None] * len(plan.arriving)
    for name, tensor in weights:
        numbers = by_name.get(name, [])
        if numbers:
            pieces = [plan.arriving[number] for number in numbers]
            parts = [as_wanted(piece.box.of(tensor), plan.wanted(piece)) for piece in pieces]
            for number, value in zip(numbers, digests(parts).tolist(), strict=True):
                found[number] = value
    return found


def as_wanted(tensor: Tensor, part: Part) -> Tensor:
    """A piece of a checkpoint's tensor as the engine holds it."""
    return as_held(tensor, getattr(torch, part.dtype), part.transform)
