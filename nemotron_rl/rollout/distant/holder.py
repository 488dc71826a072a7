"""What the rollout side does with weights that came: give them to the engine, and compare what it then holds."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import chain
from typing import Protocol

from torch import Tensor

from nemotron_rl.errors import WeightMismatch
from nemotron_rl.rollout.distant.calls import Compared, Receive
from nemotron_rl.rollout.distant.stream import WeightStream
from nemotron_rl.rollout.engine import CopyingEngine
from nemotron_rl.sync.push import different_names, first_difference


class Holder(Protocol):
    """Takes weights for this rank's part of an engine."""

    def take(self, call: Receive, stream: WeightStream) -> None:
        """Replace all weights by those of the stream.

        Raises:
            WeightMismatch: when a name is unknown, missing or given twice, or a shape is wrong.
        """
        ...

    def compare(self, version: int, sent: Mapping[str, str]) -> Compared:
        """Compare the trainer's checksums with ones of the engine's own memory.

        Raises:
            WeightMismatch: when the two sides do not name the same tensors.
        """
        ...

    def locate(self, name: str, sent: Tensor) -> str:
        """Where a tensor differs from what the engine holds."""
        ...


class CopyingHolder:
    """Of an engine in this process, to which tensors are handed one by one."""

    def __init__(self, engine: CopyingEngine) -> None:
        self._engine = engine

    def take(self, call: Receive, stream: WeightStream) -> None:
        """See `Holder.take`."""
        if call.poison:
            for name in self._engine.checksums():
                self._engine.tensor(name).fill_(float("nan"))
        self._engine.receive(chain.from_iterable(stream), call.version)

    def compare(self, version: int, sent: Mapping[str, str]) -> Compared:
        """See `Holder.compare`."""
        started = time.perf_counter()
        differing = different_names(sent, self._engine.checksums(), version)
        return Compared(frozenset(sent), tuple(differing), time.perf_counter() - started)

    def locate(self, name: str, sent: Tensor) -> str:
        """See `Holder.locate`."""
        return first_difference(sent, self._engine.tensor(name))


def take_and_compare(holder: Holder, call: Receive, stream: WeightStream) -> Compared:
    """One push on this rank. The stream is followed to its end even when a tensor is refused, or the trainer would

    wait for this rank for ever.

    Raises:
        WeightMismatch: see `Holder`.
        NemotronRLError: when the trainer could not send all weights.
    """
    refused: WeightMismatch | None = None
    try:
        holder.take(call, stream)
    except WeightMismatch as error:
        refused = error
    sent = stream.checksums()  # what the trainer met comes first: weights that are missing did not come because of it
    if refused is not None:
        raise refused
    return holder.compare(call.version, sent)
