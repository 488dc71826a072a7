"""Are two checkpoints the same, tensor by tensor and bit by bit? Streamed: memory does not grow with the tensors."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nemotron_rl.checkpoint.dtypes import itemsize
from nemotron_rl.checkpoint.layout import TensorEntry, read_checkpoint
from nemotron_rl.checkpoint.progress import Meter, Progress
from nemotron_rl.checkpoint.ranged.folder import FolderSource
from nemotron_rl.checkpoint.ranged.source import ByteSource
from nemotron_rl.checkpoint.streaming import stream_tensors
from nemotron_rl.config.base import Frozen

_Stream = Generator[tuple[TensorEntry, memoryview]]
_Places = np.ndarray[Any, np.dtype[np.intp]]


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


def verify_checkpoints(a: Path | ByteSource, b: Path | ByteSource, progress: Progress | None = None) -> Comparison:
    """Compare every tensor of two checkpoints; where they are and how they are cut into shards does not matter.

    Raises:
        CheckpointError: One of them is missing or broken.
        SourceUnavailable: One of them cannot be read.
    """
    sources = [FolderSource(place) if isinstance(place, Path) else place for place in (a, b)]
    first, second = (read_checkpoint(source)[1] for source in sources)
    shared = [(entry, second[name]) for name, entry in first.items() if name in second]
    differing = {one.name: found for one, other in shared if (found := _of_kind(one, other)) is not None}
    alike = [(one, other) for one, other in shared if one.name not in differing]
    nbytes = sum(one.nbytes for one, _ in alike)
    left = stream_tensors(sources[0], [one for one, _ in alike])
    right = stream_tensors(sources[1], [other for _, other in alike])
    with closing(left), closing(right):
        differing |= {found.name: found for found in _of_bytes(_aligned(left, right), Meter(nbytes, progress))}
    return Comparison(
        tensors=len(shared),
        nbytes=nbytes,
        missing=tuple(name for name in first if name not in second),
        extra=tuple(name for name in second if name not in first),
        differing=tuple(differing[one.name] for one, _ in shared if one.name in differing),
    )


def _of_kind(left: TensorEntry, right: TensorEntry) -> Difference | None:
    if left.shape != right.shape:
        return Difference(name=left.name, kind="shape", a=str(list(left.shape)), b=str(list(right.shape)))
    if left.dtype != right.dtype:
        return Difference(name=left.name, kind="dtype", a=left.dtype, b=right.dtype)
    return None


def _aligned(left: _Stream, right: _Stream) -> Iterator[tuple[TensorEntry, memoryview, memoryview]]:
    """Two streams of tensors of the same sizes, cut at the same places."""
    other = memoryview(b"")
    for entry, one in left:
        while one:
            if not other:
                _, other = next(right)
            size = min(len(one), len(other))
            yield entry, one[:size], other[:size]
            one, other = one[size:], other[size:]


def _of_bytes(pairs: Iterable[tuple[TensorEntry, memoryview, memoryview]], meter: Meter) -> Iterator[Difference]:
    """The tensors whose elements differ."""
    for entry, chunks in groupby(pairs, key=itemgetter(0)):
        width = itemsize(entry.dtype)
        first: tuple[int, memoryview, memoryview] | None = None
        count = start = 0
        for _, one, other in chunks:
            unequal = _unequal(one, other, width)
            if len(unequal) and first is None:
                at = int(unequal[0]) * width
                first = (start + int(unequal[0]), one[at : at + width], other[at : at + width])
            count += len(unequal)
            start += len(one) // width
            meter.add(len(one))
        if first is not None:
            place, a, b = first
            index = _index(place, entry.shape)
            yield Difference(name=entry.name, kind="bytes", a=_hex(a), b=_hex(b), first_index=index, elements=count)


def _unequal(one: memoryview, other: memoryview, width: int) -> _Places:
    """Places of the elements, of `width` bytes each, whose bits differ."""
    widest = np.dtype("<u8" if len(one) % 8 == 0 else "<u1")
    if np.array_equal(np.frombuffer(one, widest), np.frombuffer(other, widest)):
        return np.empty(0, np.intp)
    bits = np.dtype(f"<u{width}")
    return np.flatnonzero(np.frombuffer(one, bits) != np.frombuffer(other, bits))


def _index(place: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index: tuple[Any, ...] = np.unravel_index(place, shape) if shape else ()
    return tuple(int(axis) for axis in index)


def _hex(element: memoryview) -> str:
    """The bits of a little-endian element, most significant first."""
    return "0x" + bytes(element)[::-1].hex()
