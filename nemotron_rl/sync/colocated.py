"""Weights from trainer ranks to SGLang engines on the same GPUs: an engine copies them out of the trainer's own memory.

Before the first push each rank says which boxes of which checkpoint tensors it has and which its engine holds, and all
make the same plan of it (resharding.py). What lies on the right rank never leaves it: the engine gets handles of the
parameters through CUDA IPC and keeps them, so that a later push is one order and a few batched copies on the device.
The rest crosses ranks in rounds of bounded size, of which one is sent while the engine loads another. Both sides then
digest every piece where it lies (ops/digest.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from nemotron_rl.errors import WeightMismatch
from nemotron_rl.rollout.sglang.message import Answer, HeldSpec, Order, Place
from nemotron_rl.sync.box import Box
from nemotron_rl.sync.handles import as_buffers
from nemotron_rl.sync.peers import Peers, host_name, this_processes_peers
from nemotron_rl.sync.placed import Placed
from nemotron_rl.sync.proof import DigestsOfViews, as_wanted, digests_of_export
from nemotron_rl.sync.push import SyncProof, first_difference
from nemotron_rl.sync.rank_plan import RankPlan
from nemotron_rl.sync.resharding import Part, Piece, PlanError
from nemotron_rl.sync.staging import Staging

ROUND_BYTES = 256 << 20
"""What a rank sends or gets at one time; a rank that does has four buffers of this size."""


class WeightSource(Protocol):
    """What a trainer gives to a sync."""

    def weights(self) -> Iterable[tuple[str, Tensor]]:
        """(checkpoint name, full tensor) of every weight: the export, which the first push is proved against."""
        ...

    def local_views(self) -> Sequence[Placed]:
        """The same weights as parts of this rank's parameters; see `megatron.local_views`."""
        ...


class OrderedEngine(Protocol):
    """An engine that carries out orders about its weights; see `SglangEngine.order`."""

    version: int | None
    """Weights that it has; None when they are undefined."""

    def order(self, order: Order, buffers: Sequence[Tensor] = (), digests: Tensor | None = None) -> Answer:
        """Carry out one order; its views lie in `buffers`, `digests` is filled in the order of what is watched."""
        ...


@dataclass(frozen=True)
class _Ready:
    """What a push needs, made before the first one."""

    plan: RankPlan
    views: Sequence[Placed]
    keys: Sequence[str]
    """Of what the engine holds, in the order of the plan's parts."""
    staging: Staging
    digests: DigestsOfViews
    nbytes: int
    """Of all that the engine gets."""


@dataclass(frozen=True)
class _Sent:
    """Seconds in which the engine copied, waited for other ranks, and took digests."""

    load_s: float
    exchange_s: float
    digest_s: float


class ColocatedSync:
    """Pushes a trainer's weights to the engines on its ranks; every method is a collective call of all of them."""

    def __init__(
        self, source: WeightSource, engine: OrderedEngine, peers: Peers | None = None, *, round_bytes: int = ROUND_BYTES
    ) -> None:
        """`peers` are the ranks of the default process group unless said otherwise."""
        self._source, self._engine = source, engine
        self._peers = this_processes_peers() if peers is None else peers
        self._round_bytes = round_bytes
        self._ready: _Ready | None = None

    @property
    def plan(self) -> RankPlan | None:
        """This rank's part in every push; None before the first."""
        return self._ready.plan if self._ready else None

    def push(self, version: int) -> SyncProof:
        """Replace the engine's weights by the trainer's and compare digests taken on both sides.

        The first push also overwrites all of the engine's weights with NaNs before, and is proved against the export
        instead of the views that were copied: a wrong plan cannot agree with itself.

        Raises:
            WeightMismatch: naming the version, the first tensor that is missing, unknown or different, and the index;
                on every rank.
        """
        _finish()  # an optimizer step may still be running
        started = time.perf_counter()
        first = self._ready is None
        if self._ready is None:
            self._ready = self._prepared(version)
            self._engine.order(Order(do="poison"))
        ready = self._ready
        theirs_N = torch.zeros(len(ready.plan.arriving), dtype=torch.int64, device=ready.views[0].view.device)
        sent = self._send(ready, first, theirs_N)
        received = time.perf_counter()
        ours = digests_of_export(ready.plan, self._source.weights()) if first else ready.digests.run()
        self._compare(version, ready, ours, theirs_N.tolist())
        self._engine.version = version
        return SyncProof(
            version,
            len(ready.keys),
            0,
            ready.nbytes,
            transfer_s=received - started - sent.digest_s,
            proof_s=time.perf_counter() - received + sent.digest_s,
            load_s=sent.load_s,
            exchange_s=sent.exchange_s,
        )

    def _prepared(self, version: int) -> _Ready:
        held = self._engine.order(Order(do="describe")).held
        views = list(self._source.local_views())
        described = self._peers.gather((host_name(), [view.part for view in views], [_wanted(spec) for spec in held]))
        hosts, have, want = zip(*described, strict=True)
        try:
            plan = RankPlan.of(self._peers.rank, have, want, hosts, self._round_bytes)
        except PlanError as error:
            raise WeightMismatch(f"weight version {version}: {error}") from error
        keys = [spec.key for spec in held]
        self._engine.order(Order(do="watch", places=tuple(_place(plan, keys, piece) for piece in plan.arriving)))
        nbytes = sum(_nbytes(plan, piece) for piece in plan.arriving)
        return _Ready(
            plan, views, keys, Staging(plan, views, self._peers), DigestsOfViews(plan, views, self._peers), nbytes
        )

    def _send(self, ready: _Ready, first: bool, digests_N: Tensor) -> _Sent:
        """Have the engine load everything, and take its digests with the last order."""
        staging, last = ready.staging, len(ready.plan.rounds)
        pending = staging.start(0) if last else None
        in_place = [(piece, ready.views[piece.have].of(piece.box)) for piece in ready.plan.local] if first else []
        answer = self._load(ready, 0, in_place, first, None if last else digests_N)
        load_s, exchange_s = answer.load_s, 0.0
        for index in range(last):
            waiting = time.perf_counter()
            assert pending is not None  # there is a round
            pending.wait()
            _finish_stream()
            exchange_s += time.perf_counter() - waiting
            if index + 1 < last:
                pending = staging.start(index + 1)
            pieces = staging.received(index) if first else []
            answer = self._load(ready, 1 + index, pieces, first, digests_N if index + 1 == last else None)
            load_s += answer.load_s
        return _Sent(load_s, exchange_s, answer.digest_s)

    def _load(
        self, ready: _Ready, slot: int, pieces: Sequence[tuple[Piece, Tensor]], first: bool, digests_N: Tensor | None
    ) -> Answer:
        if not first:
            return self._engine.order(Order(do="again", slot=slot), digests=digests_N)
        placed = [(_place(ready.plan, ready.keys, piece), view) for piece, view in pieces]
        buffers, specs = as_buffers(placed)
        return self._engine.order(Order(do="load", views=specs, keep=True, slot=slot), buffers, digests_N)

    def _compare(self, version: int, ready: _Ready, ours: Sequence[int | None], theirs: Sequence[int]) -> None:
        pairs = zip(ready.plan.arriving, ours, theirs, strict=True)
        differing = [piece for piece, our, their in pairs if our != their]
        if not any(self._peers.gather(len(differing))):
            return
        said = self._peers.gather(self._difference(ready, differing))
        raise WeightMismatch(f"weight version {version}: {next(message for message in said if message)}")

    def _difference(self, ready: _Ready, differing: Sequence[Piece]) -> str:
        """Says what differs first on this rank, empty when nothing does. The export is a collective call."""
        piece = min(differing, key=lambda one: one.name, default=None)
        sent: Tensor | None = None
        for name, tensor in self._source.weights():
            if piece is not None and name == piece.name:
                sent = as_wanted(piece.box.of(tensor), ready.plan.wanted(piece)).clone()
        if piece is None:
            return ""
        where = (
            "was not exported" if sent is None else first_difference(sent, self._read(ready, piece), piece.box.start)
        )
        names = {one.name for one in differing}
        rank = f" on rank {self._peers.rank}" if self._peers.size > 1 else ""
        return (
            f"{len(names)} of {len(ready.keys)} tensors differ between trainer and engine{rank}; {piece.name} {where}"
        )

    def _read(self, ready: _Ready, piece: Piece) -> Tensor:
        """One piece as the engine holds it, copied to this process."""
        dtype: torch.dtype = getattr(torch, ready.plan.wanted(piece).dtype)
        copy = torch.empty(piece.box.size, dtype=dtype, device=ready.views[0].view.device)
        buffers, specs = as_buffers([(_place(ready.plan, ready.keys, piece), copy)])
        self._engine.order(Order(do="read", views=specs), buffers)
        return copy


def _wanted(spec: HeldSpec) -> Part:
    box = Box(spec.start or (0,) * len(spec.shape), spec.shape)
    return Part(spec.name, box, spec.dtype, spec.transform)


def _place(plan: RankPlan, keys: Sequence[str], piece: Piece) -> Place:
    """Where a piece is in what the engine holds."""
    inside = piece.box.inside(plan.wanted(piece).box)
    return Place(key=keys[piece.want], start=inside.start, shape=inside.size)


def _nbytes(plan: RankPlan, piece: Piece) -> int:
    dtype: torch.dtype = getattr(torch, plan.source(piece).dtype)
    return piece.box.numel * dtype.itemsize


def _finish() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _finish_stream() -> None:
    """Wait for what this stream waits for, but not for the next round, which is sent on another."""
    if torch.cuda.is_available():
        torch.cuda.current_stream().synchronize()
