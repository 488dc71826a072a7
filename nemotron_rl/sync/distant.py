"""Weights from a trainer to engines on other ranks: exported, packed into buckets, broadcast, loaded and compared.

Only the first trainer sends. While a bucket is on its way, the next one is packed into the other of two buffers, and
the rollout ranks load the one before; they answer with what their own memory's checksums say.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from nemotron_rl.errors import WeightMismatch
from nemotron_rl.rollout.distant.bridge import Bridge, Channel
from nemotron_rl.rollout.distant.calls import Broken, Compared, End, Failed, Locate, Receive
from nemotron_rl.rollout.distant.stream import stream_buffers
from nemotron_rl.sync.buckets import BUCKET_BYTES, packed
from nemotron_rl.sync.checksums import Checksums, HostChecksums
from nemotron_rl.sync.push import SyncProof, Weights

_MTP = "mtp."
"""Names of a head that an engine may be without."""


class Agree(Protocol):
    """Calls a function on the first trainer; every trainer gets its result, or raises what it raised."""

    def __call__[T](self, make: Callable[[], T]) -> T: ...


@dataclass
class _Sent:
    """What went past on its way to the engines."""

    checksums: Checksums
    names: set[str] = field(default_factory=set)
    nbytes: int = 0

    def watch(self, weights: Iterator[tuple[str, Tensor]], version: int) -> Iterator[tuple[str, Tensor]]:
        """The weights as they come.

        Raises:
            WeightMismatch: at the second tensor of one name.
        """
        for name, tensor in weights:
            if name in self.names:
                raise WeightMismatch(f"weight version {version}: {name} was exported twice")
            self.names.add(name)
            self.nbytes += tensor.nbytes
            self.checksums.add(name, tensor)
            yield name, tensor


@dataclass(frozen=True)
class _Verdict:
    """What the answers of all engines come to."""

    tensors: int
    nbytes: int
    proof_s: float
    differing: tuple[str, ...] = ()
    """Of the first rank with a difference."""
    rank: int = 0
    """That rank."""


class DistantSync:
    """Pushes one trainer's weights to the engines on the other side of a bridge; every method is a collective call."""

    def __init__(
        self,
        export: Callable[[], Weights],
        bridge: Bridge,
        agree: Agree,
        checksums: Callable[[], Checksums] = HostChecksums,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        """`export` gives (checkpoint name, full tensor) on every trainer, each valid until the next."""
        self._export, self._bridge, self._agree, self._checksums = export, bridge, agree, checksums
        self._sends = bridge.rank == 0
        self._buffers = stream_buffers(bridge.device, bucket_bytes) if self._sends else []
        self._first = True

    def push(self, version: int) -> SyncProof:
        """Replace the weights of all engines by the exported ones and compare checksums taken on both sides.

        The first push makes all of the engines' weights NaN before.

        Raises:
            WeightMismatch: on every trainer, naming the version, the first tensor that is missing, unknown, given twice
                or different, and the index.
        """
        started = time.perf_counter()
        sent, refused = self._send(version)
        verdict = self._agree(lambda: self._judged(version, sent, refused))
        if verdict.differing:
            name = verdict.differing[0]
            raise WeightMismatch(
                f"weight version {version}: {len(verdict.differing)} of {verdict.tensors} tensors differ between "
                f"trainer and the engine on rank {verdict.rank}; {name} {self._where(verdict.rank, name)}"
            )
        self._first = False
        seconds = time.perf_counter() - started
        return SyncProof(
            version,
            verdict.tensors,
            0,
            verdict.nbytes,
            transfer_s=seconds - verdict.proof_s,
            proof_s=verdict.proof_s,
        )

    def _send(self, version: int) -> tuple[_Sent, WeightMismatch | None]:
        """Go through the export, which is collective, to its end; the first trainer sends what comes."""
        sent = _Sent(self._checksums())
        weights = iter(self._export())
        refused = None
        if self._sends:
            for engine in range(self._bridge.places.engines):
                call = Receive(version, poison=self._first)
                self._bridge.send(call, self._bridge.places.leader(engine), Channel.CALLS)
            try:
                self._stream(sent.watch(weights, version))
                self._tell_ranks(End(sent.checksums.result()))
            except BaseException as error:
                self._tell_ranks(Broken(str(error)))
                if not isinstance(error, WeightMismatch):
                    raise
                refused = error
        for _ in weights:
            pass
        return sent, refused

    def _stream(self, weights: Iterator[tuple[str, Tensor]]) -> None:
        under_way: list[Any] = [None] * len(self._buffers)
        number = -1

        def memory() -> Tensor:
            nonlocal number
            number += 1
            _finish(under_way[number % len(self._buffers)])
            return self._buffers[number % len(self._buffers)]

        for bucket, data_N in packed(weights, memory):
            self._tell_ranks(bucket)
            under_way[number % len(self._buffers)] = self._bridge.broadcast(data_N)
        for work in under_way:
            _finish(work)

    def _judged(self, version: int, sent: _Sent, refused: WeightMismatch | None) -> _Verdict:
        """Of every rollout rank's answer. All are waited for, so that none is left for the next call."""
        places = self._bridge.places
        answers = {rank: self._bridge.receive(rank, Channel.ANSWERS) for rank in places.rollout_ranks}
        if refused is not None:
            raise refused
        for answer in answers.values():
            if isinstance(answer, Failed):
                raise answer.error
        compared: dict[int, Compared] = answers
        for engine in range(places.engines):
            held = frozenset[str]().union(*(compared[rank].names for rank in places.ranks_of(engine)))
            unheld = {name for name in sent.names - held if not name.startswith(_MTP)}
            if unheld:
                raise WeightMismatch(
                    f"weight version {version}: {len(unheld)} tensors have no place in engine {engine}; the first is "
                    f"{min(unheld)}"
                )
        rank = next((rank for rank, answer in compared.items() if answer.differing), places.trainers)
        proof_s = max(answer.seconds for answer in compared.values())
        return _Verdict(len(held), sent.nbytes, proof_s, compared[rank].differing, rank)

    def _where(self, rank: int, name: str) -> str:
        """Where a tensor differs, by another export; a collective call."""
        found = [tensor.clone() for other, tensor in self._export() if other == name]
        return self._agree(lambda: self._located(rank, name, found))

    def _located(self, rank: int, name: str, found: Sequence[Tensor]) -> str:
        if not found:
            return "is not exported any more"
        places = self._bridge.places
        leader = places.leader(places.engine_of(rank))
        self._bridge.send(Locate(rank, name, found[0].cpu()), leader, Channel.CALLS)
        return str(self._bridge.receive(rank, Channel.ANSWERS))

    def _tell_ranks(self, header: object) -> None:
        for rank in self._bridge.places.rollout_ranks:
            self._bridge.send(header, rank, Channel.WEIGHTS)


def _finish(work: Any) -> None:
    if work is not None:
        work.wait()
