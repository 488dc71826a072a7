"""NaN and infinity among the bits of every float type that safetensors files have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nemotron_rl.checkpoint.dtypes import itemsize
from nemotron_rl.checkpoint.layout import TensorEntry
from nemotron_rl.checkpoint.progress import Meter, Progress
from nemotron_rl.checkpoint.ranged.source import ByteSource
from nemotron_rl.checkpoint.streaming import stream_tensors
from nemotron_rl.config.base import Frozen


@dataclass(frozen=True)
class _Bits:
    """How a float type spells what is not a number. All without the sign, where the type has one."""

    magnitude: int
    """The bits that are not the sign."""
    special: int
    """From here on it is infinity or NaN."""
    has_infinity: bool = True
    """Whether `special` itself is infinity, and only what is larger NaN."""


_FLOATS = {
    "F64": _Bits(0x7FFF_FFFF_FFFF_FFFF, 0x7FF0_0000_0000_0000),
    "F32": _Bits(0x7FFF_FFFF, 0x7F80_0000),
    "F16": _Bits(0x7FFF, 0x7C00),
    "BF16": _Bits(0x7FFF, 0x7F80),
    "F8_E5M2": _Bits(0x7F, 0x7C),
    "F8_E4M3": _Bits(0x7F, 0x7F, has_infinity=False),
    "F8_E8M0": _Bits(0xFF, 0xFF, has_infinity=False),
}
"""IEEE 754; OCP 8-bit floating point 1.0 (E4M3 has no infinity); OCP microscaling 1.0 (E8M0 has no sign either)."""


class NotFinite(Frozen):
    """A tensor with values that are no finite numbers."""

    name: str
    nan: int
    """Elements that are NaN."""
    inf: int
    """Elements that are positive or negative infinity."""


class Scan(Frozen):
    """What a scan read and found."""

    tensors: int
    """Tensors of float types."""
    nbytes: int
    """Their bytes."""
    not_finite: tuple[NotFinite, ...]
    """Empty for a sound checkpoint."""


def scan_tensors(source: ByteSource, entries: Iterable[TensorEntry], progress: Progress | None = None) -> Scan:
    """Read every tensor of a float type and count its NaN and infinities. Memory does not grow with the tensors.

    Raises:
        SourceUnavailable: The source kept failing.
        CheckpointError: The source is not what it was when it was opened.
    """
    floats = sorted((e for e in entries if e.dtype in _FLOATS), key=lambda entry: (entry.file, entry.offset))
    meter = Meter(sum(entry.nbytes for entry in floats), progress)
    counts: dict[str, tuple[int, int]] = {}
    for entry, chunk in stream_tensors(source, floats):
        nan, inf = count_not_finite(chunk, entry.dtype)
        if nan or inf:
            before = counts.get(entry.name, (0, 0))
            counts[entry.name] = (before[0] + nan, before[1] + inf)
        meter.add(len(chunk))
    return Scan(
        tensors=len(floats),
        nbytes=sum(entry.nbytes for entry in floats),
        not_finite=tuple(NotFinite(name=name, nan=nan, inf=inf) for name, (nan, inf) in counts.items()),
    )


def count_not_finite(data: memoryview | bytes, dtype: str) -> tuple[int, int]:
    """How many elements are (NaN, infinite). `dtype` is a safetensors code; integers have neither."""
    bits = _FLOATS.get(dtype)
    if bits is None:
        return 0, 0
    nan = inf = 0
    for magnitude in _magnitudes(data, dtype, bits):
        special = int(np.count_nonzero(magnitude >= bits.special))
        if special:
            infinite = int(np.count_nonzero(magnitude == bits.special)) if bits.has_infinity else 0
            nan, inf = nan + special - infinite, inf + infinite
    return nan, inf


_BLOCK_ELEMENTS = 1 << 17


def _magnitudes(data: memoryview | bytes, dtype: str, bits: _Bits) -> Iterator[np.ndarray[Any, Any]]:
    """The elements without their signs as unsigned integers, in blocks that stay in the processor's cache."""
    words = np.frombuffer(data, np.dtype(f"<u{itemsize(dtype)}"))
    for start in range(0, len(words), _BLOCK_ELEMENTS):
        yield words[start : start + _BLOCK_ELEMENTS] & words.dtype.type(bits.magnitude)
