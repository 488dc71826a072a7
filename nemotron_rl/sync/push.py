"""Sends the trainer's weights to an engine and proves that the engine holds exactly these."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from nemotron_rl.errors import WeightMismatch
from nemotron_rl.ops.checksum import tensor_checksum
from nemotron_rl.rollout.engine import CopyingEngine

Weights = Iterable[tuple[str, Tensor]]


@dataclass(frozen=True)
class SyncProof:
    """What was sent and compared in one push."""

    version: int
    tensors: int
    """Tensors compared."""
    mismatched: int
    """Tensors that differed: 0, for `push` raises otherwise."""
    nbytes: int
    """Bytes sent."""
    transfer_s: float
    """Seconds until the engine held them."""
    proof_s: float
    """Seconds that the comparison took beyond that."""
    load_s: float = 0.0
    """The part of `transfer_s` in which bytes moved, where the engine says so."""
    exchange_s: float = 0.0
    """The part of `transfer_s` in which this rank's engine waited for what came from other ranks."""


@dataclass
class _Sent:
    """What went past on its way to the engine."""

    checksums: dict[str, str] = field(default_factory=dict)
    nbytes: int = 0

    def watch(self, weights: Weights) -> Iterator[tuple[str, Tensor]]:
        for name, tensor in weights:
            self.checksums[name] = tensor_checksum(tensor)
            self.nbytes += tensor.nbytes
            yield name, tensor


class CopyingSync:
    """Pushes one trainer's weights to one engine."""

    def __init__(self, export: Callable[[], Weights], engine: CopyingEngine) -> None:
        self._export, self._engine = export, engine

    def push(self, version: int) -> SyncProof:
        """See the function `push`."""
        return push(self._export, self._engine, version)


def push(export: Callable[[], Weights], engine: CopyingEngine, version: int) -> SyncProof:
    """Replace the engine's weights by the exported ones and compare checksums taken on both sides.

    `export` is called once, and once more to say where a tensor differs.

    Raises:
        WeightMismatch: naming the version, the first tensor that is missing, unknown or different, and the index.
    """
    sent = _Sent()
    started = time.perf_counter()
    engine.receive(sent.watch(export()), version)
    received = time.perf_counter()
    differing = different_names(sent.checksums, engine.checksums(), version)
    if differing:
        first = differing[0]
        where = next(first_difference(t, engine.tensor(name)) for name, t in export() if name == first)
        raise WeightMismatch(
            f"weight version {version}: {len(differing)} of {len(sent.checksums)} tensors differ between trainer and "
            f"engine; {first} {where}"
        )
    return SyncProof(
        version,
        len(sent.checksums),
        len(differing),
        sent.nbytes,
        transfer_s=received - started,
        proof_s=time.perf_counter() - received,
    )


def different_names(sent: Mapping[str, str], held: Mapping[str, str], version: int) -> list[str]:
    """Names whose checksums differ, sorted.

    Raises:
        WeightMismatch: when the two sides do not name the same tensors.
    """
    unheld, unsent = sent.keys() - held.keys(), held.keys() - sent.keys()
    for names, what in ((unheld, "were sent but are not held"), (unsent, "are held but were not sent")):
        if names:
            raise WeightMismatch(f"weight version {version}: {len(names)} tensors {what}; the first is {min(names)}")
    return sorted(name for name in sent if sent[name] != held[name])


def first_difference(sent: Tensor, held: Tensor, start: Sequence[int] = ()) -> str:
    """Says where two tensors first differ: index, both values, and how many elements do.

    Boxes of a tensor that begins elsewhere than at zero are counted from its `start`.
    """
    if sent.shape != held.shape or sent.dtype != held.dtype:
        return f"is {sent.dtype} {tuple(sent.shape)}, held as {held.dtype} {tuple(held.shape)}"
    places = (sent.cpu() != held.cpu()).nonzero()
    if not len(places):
        return "differs only in the bits of zeros or NaNs"
    index = tuple(places[0].tolist())
    values = f"sent {sent[index].item()!r}, held {held[index].item()!r}"
    where = [place + first for place, first in zip(index, start or (0,) * len(index), strict=True)]
    return f"first differs at {where}: {values}; {len(places)} elements differ"
