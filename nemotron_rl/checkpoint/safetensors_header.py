"""A strict reader and writer of safetensors headers. It never allocates more than a header may be long.

Format: 8 bytes of little-endian header length, the header as a JSON object, then the tensors' bytes without gaps.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from nemotron_rl.checkpoint.dtypes import NUMPY_DTYPES, itemsize
from nemotron_rl.checkpoint.strict_json import parse_object, shown
from nemotron_rl.errors import CheckpointError

LENGTH_BYTES = 8
LARGEST_HEADER = 100_000_000
"""Bytes; the limit of the safetensors library itself."""
_METADATA = "__metadata__"
_FIELDS = {"dtype", "shape", "data_offsets"}


@dataclass(frozen=True, slots=True)
class HeaderEntry:
    """One tensor of a file."""

    name: str
    dtype: str
    """Safetensors code."""
    shape: tuple[int, ...]
    start: int
    """First byte, counted from the beginning of the file."""
    end: int
    """One past the last byte, counted from the beginning of the file."""


@dataclass(frozen=True)
class Header:
    """What a file says about itself."""

    entries: tuple[HeaderEntry, ...]
    """In the order of their bytes."""
    metadata: Mapping[str, str]


def read_header(path: Path) -> Header:
    """Read and check the header of a safetensors file.

    Raises:
        CheckpointError: The file cannot be read, is truncated, or its header is broken; names the file and the tensor.
    """
    try:
        with path.open("rb") as file:
            return _read(file, path.stat().st_size, path.name)
    except OSError as error:
        raise CheckpointError(f"{path.name}: cannot be read: {error.strerror}") from error


def header_length(prefix: bytes, size: int, where: str) -> int:
    """Bytes of the header of a file of `size` bytes that begins with `prefix` (its first 8 bytes).

    Raises:
        CheckpointError: The file is too short for what it claims.
    """
    if len(prefix) < LENGTH_BYTES:
        _broken(where, f"truncated: {size} bytes are too few for a safetensors file")
    (length,) = struct.unpack("<Q", prefix)
    if length > min(LARGEST_HEADER, size - LENGTH_BYTES):
        _broken(
            where, f"its header claims {length:,} bytes, the file has {size:,}: truncated, or not a safetensors file"
        )
    return int(length)


def parse_header(text: bytes, data_bytes: int, where: str) -> Header:
    """Check a header's JSON against the `data_bytes` that follow it in the file `where`.

    Raises:
        CheckpointError: It is broken; says which tensor and how.
    """
    fields = parse_object(text, f"{where}: its header")
    metadata = _check_metadata(fields.pop(_METADATA, {}), where)
    base = LENGTH_BYTES + len(text)
    entries = sorted(
        (_entry(name, value, base, data_bytes, where) for name, value in fields.items()),
        key=lambda entry: (entry.start, entry.end),
    )
    _check_contiguous(entries, base, data_bytes, where)
    return Header(tuple(entries), metadata)


def format_header(tensors: Sequence[tuple[str, str, tuple[int, ...]]], metadata: Mapping[str, str]) -> bytes:
    """Length and header of a file that holds `tensors` (name, dtype, shape) in this order, padded to 8 bytes."""
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    offset = 0
    for name, dtype, shape in tensors:
        end = offset + math.prod(shape) * itemsize(dtype)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _read(file: BinaryIO, size: int, where: str) -> Header:
    length = header_length(file.read(LENGTH_BYTES), size, where)
    text = file.read(length)
    if len(text) != length:
        _broken(where, "it became shorter while it was read")
    return parse_header(text, size - LENGTH_BYTES - length, where)


def _check_metadata(value: object, where: str) -> Mapping[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        _broken(where, f"`{_METADATA}` must be an object of strings")
    return value


def _entry(name: str, value: object, base: int, data_bytes: int, where: str) -> HeaderEntry:
    if not isinstance(value, dict) or set(value) != _FIELDS:
        _broken(where, f"{shown(name)} must have exactly dtype, shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in NUMPY_DTYPES:
        _broken(where, f"{shown(name)} has the unknown dtype {shown(dtype)}")
    if not _are_sizes(shape):
        _broken(where, f"{shown(name)} has the shape {shown(shape)}; expected a list of whole numbers")
    if not _are_sizes(offsets) or len(offsets) != 2 or not offsets[0] <= offsets[1]:
        _broken(where, f"{shown(name)} has the data_offsets {shown(offsets)}; expected [begin, end]")
    begin, end = offsets
    if end > data_bytes:
        _broken(where, f"{shown(name)} ends at byte {end:,} of {data_bytes:,}: truncated. Download the file again")
    needed = math.prod(shape) * itemsize(dtype)
    if end - begin != needed:
        _broken(
            where,
            f"{shown(name)} ({dtype} {shown(shape)}) needs {needed:,} bytes, its data_offsets span {end - begin:,}",
        )
    return HeaderEntry(name, dtype, tuple(shape), base + begin, base + end)


def _are_sizes(value: object) -> bool:
    return isinstance(value, list) and len(value) <= 64 and all(type(x) is int and 0 <= x < 1 << 63 for x in value)


def _check_contiguous(entries: Sequence[HeaderEntry], base: int, data_bytes: int, where: str) -> None:
    expected = base
    for entry in entries:
        if entry.start != expected:
            kind = "overlaps the tensor before it" if entry.start < expected else "leaves a gap before it"
            _broken(where, f"{shown(entry.name)} {kind}")
        expected = entry.end
    if expected != base + data_bytes:
        _broken(where, f"{base + data_bytes - expected:,} bytes at its end belong to no tensor")


def _broken(where: str, what: str) -> NoReturn:
    raise CheckpointError(f"{where}: {what}")
