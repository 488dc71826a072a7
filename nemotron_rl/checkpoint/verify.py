"""Are two checkpoints the same, tensor by tensor and bit by bit? Streamed: memory does not grow with the tensors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nemotron_rl.checkpoint.dtypes import itemsize
from nemotron_rl.checkpoint.layout import CheckpointFolder, TensorEntry
from nemotron_rl.checkpoint.progress import Meter, Progress
from nemotron_rl.config.base import Frozen


class Difference(Frozen):
    """One tensor that both checkpoints have and that is not the same."""

    name: str
    kind: Literal["shape", "dtype", "bytes"]
    """What differs; bytes are only compared when shape and dtype are equal."""
    a: str
    """Shape, dtype or first differing element of the first checkpoint; elements as hexadecimal bits."""
    b: str
    """The same of the second."""
    first_index: tuple[int, ...] | None = None
    """Where the first differing element is."""
    elements: int = 0
    """How many elements differ."""


class Comparison(Frozen):
    """Two checkpoints compared. `model_dump_json()` is its JSON form."""

    tensors: int
    """Tensors that both have."""
    nbytes: int
    """Bytes compared on each side."""
    missing: tuple[str, ...]
    """Tensors that only the first has."""
    extra: tuple[str, ...]
    """Tensors that only the second has."""
    differing: tuple[Difference, ...]

    @property
    def identical(self) -> bool:
        """Whether the two have the same tensors with the same bits."""
        return not (self.missing or self.extra or self.differing)


def verify_checkpoints(a: Path, b: Path, progress: Progress | None = None) -> Comparison:
    """Compare every tensor of two checkpoint folders; how they are cut into shards does not matter.

    Raises:
        CheckpointError: One of them is missing or broken.
    """
    first, second = CheckpointFolder.open(a), CheckpointFolder.open(b)
    shared = [name for name in first.tensors if name in second.tensors]
    differing = []
    meter = Meter(sum(first.tensors[name].nbytes for name in shared), progress)
    compared = 0
    for name in shared:
        left, right = first.tensors[name], second.tensors[name]
        difference = _of_kind(left, right)
        if difference is None:
            compared += left.nbytes
            difference = _of_bytes(left, first.raw(name), second.raw(name), meter)
        else:
            meter.add(left.nbytes)
        if difference is not None:
            differing.append(difference)
    return Comparison(
        tensors=len(shared),
        nbytes=compared,
        missing=tuple(name for name in first.tensors if name not in second.tensors),
        extra=tuple(name for name in second.tensors if name not in first.tensors),
        differing=tuple(differing),
    )


def _of_kind(left: TensorEntry, right: TensorEntry) -> Difference | None:
    if left.shape != right.shape:
        return Difference(name=left.name, kind="shape", a=str(list(left.shape)), b=str(list(right.shape)))
    if left.dtype != right.dtype:
        return Difference(name=left.name, kind="dtype", a=left.dtype, b=right.dtype)
    return None


def _of_bytes(entry: TensorEntry, left: Iterator[bytes], right: Iterator[bytes], meter: Meter) -> Difference | None:
    """Compare chunk by chunk; both sides are cut at the same places, between elements."""
    width = itemsize(entry.dtype)
    bits = np.dtype(f"<u{width}")
    first: tuple[int, bytes, bytes] | None = None
    count = start = 0
    for one, other in zip(left, right, strict=True):
        if one != other:
            unequal = np.flatnonzero(np.frombuffer(one, bits) != np.frombuffer(other, bits))
            count += len(unequal)
            if first is None:
                at = int(unequal[0]) * width
                first = (start + int(unequal[0]), one[at : at + width], other[at : at + width])
        start += len(one) // width
        meter.add(len(one))
    if first is None:
        return None
    place, a, b = first
    return Difference(
        name=entry.name, kind="bytes", a=_hex(a), b=_hex(b), first_index=_index(place, entry.shape), elements=count
    )


def _index(place: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index: tuple[Any, ...] = np.unravel_index(place, shape) if shape else ()
    return tuple(int(axis) for axis in index)


def _hex(element: bytes) -> str:
    """The bits of a little-endian element, most significant first."""
    return "0x" + element[::-1].hex()
