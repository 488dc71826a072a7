"""A checkpoint folder as it lies on disk: config, index and shards, checked against each other in both directions.

Only headers are read on opening; the tensors' bytes are read one tensor at a time, in chunks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from nemotron_rl.checkpoint.dtypes import NUMPY_DTYPES
from nemotron_rl.checkpoint.ranged.folder import FolderSource
from nemotron_rl.checkpoint.ranged.retry import read_bytes
from nemotron_rl.checkpoint.ranged.source import ByteSource, SourceChanged, SourceUnavailable, is_plain_name
from nemotron_rl.checkpoint.safetensors_header import LENGTH_BYTES, Header, HeaderEntry, header_length, parse_header
from nemotron_rl.checkpoint.spelling import Pattern, read_pattern
from nemotron_rl.checkpoint.strict_json import parse_object, shown
from nemotron_rl.errors import CheckpointError

CONFIG_FILE = "config.json"
INDEX_FILE = "model.safetensors.index.json"
SINGLE_FILE = "model.safetensors"
CHUNK_BYTES = 8 << 20
LARGEST_INDEX, LARGEST_JSON = 100_000_000, 10_000_000
"""Bytes of an index, and of any other JSON file, that are read into memory. Ultra's index has some 5 MB."""
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where a tensor's bytes are."""

    name: str
    file: str
    """Name of the shard in the folder."""
    dtype: str
    """Safetensors code."""
    shape: tuple[int, ...]
    offset: int
    """First byte, counted from the beginning of the file."""
    nbytes: int

    @property
    def params(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """What the index and the shards say, and where they contradict each other."""

    tensors: Mapping[str, TensorEntry]
    """Every tensor that the index names and a shard holds, in the order of files and bytes."""
    problems: tuple[str, ...]
    """One sentence each; empty for a sound checkpoint."""


@dataclass(frozen=True)
class CheckpointFolder:
    """A sound checkpoint folder."""

    path: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, TensorEntry]

    @classmethod
    def open(cls, path: Path) -> CheckpointFolder:
        """Read the config, the index and every header, and compare them.

        Raises:
            CheckpointError: Something is missing or contradicts something else; names the files and tensors.
        """
        config, tensors = read_checkpoint(FolderSource(path))
        return cls(path, config, tensors)

    @cached_property
    def pattern(self) -> Pattern:
        """The block pattern of the config."""
        return read_pattern(self.config, str(self.path / CONFIG_FILE))

    def entry(self, name: str) -> TensorEntry:
        """Where a tensor is.

        Raises:
            CheckpointError: There is no tensor of this name.
        """
        if name not in self.tensors:
            raise CheckpointError(f"{self.path} has no tensor '{name}'")
        return self.tensors[name]

    def raw(self, name: str, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
        """The tensor's bytes, in order, at most `chunk_bytes` at a time.

        Raises:
            CheckpointError: No such tensor, or the file ends before the tensor does.
        """
        entry = self.entry(name)
        with (self.path / entry.file).open("rb") as file:
            file.seek(entry.offset)
            left = entry.nbytes
            while left:
                chunk = file.read(min(chunk_bytes, left))
                if not chunk:
                    raise CheckpointError(f"{entry.file}: became shorter while '{name}' was read")
                left -= len(chunk)
                yield chunk

    def read(self, name: str) -> np.ndarray[Any, np.dtype[Any]]:
        """The tensor in memory, in its own type (ml_dtypes for bf16 and fp8)."""
        entry = self.entry(name)
        data = bytearray().join(self.raw(name))
        return np.frombuffer(data, dtype=NUMPY_DTYPES[entry.dtype]).reshape(entry.shape)


def read_checkpoint(source: ByteSource) -> tuple[dict[str, Any], Mapping[str, TensorEntry]]:
    """Config and tensors of a checkpoint, wherever it is: config, index and headers are read and compared.

    Raises:
        CheckpointError: Something is missing or contradicts something else; names the files and tensors.
    """
    config = read_source_json(source, CONFIG_FILE)
    layout = source_layout(source)
    if layout.problems:
        first = "\n  ".join(layout.problems[:_SHOWN])
        rest = f"\n  and {len(layout.problems) - _SHOWN} more" if len(layout.problems) > _SHOWN else ""
        raise CheckpointError(f"the checkpoint {source.where} is broken:\n  {first}{rest}")
    return config, layout.tensors


def read_json_object(path: Path) -> dict[str, Any]:
    """A JSON file whose top level is an object.

    Raises:
        CheckpointError: The file is missing, unreadable, or something else.
    """
    try:
        size = path.stat().st_size
        if not path.is_file():  # reading a pipe would never end
            raise CheckpointError(f"{path}: is not a file. A checkpoint folder must have it")
        if size > LARGEST_INDEX:
            raise CheckpointError(f"{path}: has {size:,} bytes; no more than {LARGEST_INDEX:,} are read")
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}. A checkpoint folder must have it") from error
    return parse_object(data, str(path))


def read_source_json(source: ByteSource, file: str) -> dict[str, Any]:
    """A JSON file of a source whose top level is an object.

    Raises:
        CheckpointError: The file is missing, unreadable, absurdly large, or something else.
    """
    where = f"{source.where}/{file}"
    if file not in source.files:
        raise CheckpointError(f"{where}: there is no such file, or it is no regular one. A checkpoint must have it")
    size, largest = source.files[file].size, LARGEST_INDEX if file == INDEX_FILE else LARGEST_JSON
    if size > largest:
        raise CheckpointError(f"{where}: has {size:,} bytes; no more than {largest:,} are read")
    return parse_object(read_bytes(source, file, 0, size), where)


def read_layout(path: Path) -> Layout:
    """Index and headers of a folder, with all that is wrong between them.

    Raises:
        CheckpointError: There are no weights, or the index is not an index at all.
    """
    return source_layout(FolderSource(path))


def source_layout(source: ByteSource) -> Layout:
    """As `read_layout`, wherever the checkpoint is; of the shards only the headers are fetched.

    Raises:
        CheckpointError: There are no weights, or the index is not an index at all.
        SourceUnavailable: The source cannot be read.
    """
    index = _read_index(source)
    files = sorted(set(index.values())) if index is not None else [SINGLE_FILE]
    reading = _Reading(source, index)
    with ThreadPoolExecutor(source.workers) as pool:
        for file, header in zip(files, pool.map(partial(_read_header, source), files), strict=True):
            reading.add_shard(file, header)
    if index is not None:
        reading.add_unkept_promises(index)
        reading.add_strays(set(files))
    return Layout(reading.tensors, tuple(reading.problems))


def _read_header(source: ByteSource, file: str) -> Header | str:
    """A shard's header, or what is wrong with it."""
    if file not in source.files:
        return f"{INDEX_FILE} names {file}, which is absent"
    size = source.files[file].size
    try:
        length = header_length(read_bytes(source, file, 0, min(LENGTH_BYTES, size)), size, file)
        text = read_bytes(source, file, LENGTH_BYTES, LENGTH_BYTES + length)
        return parse_header(text, size - LENGTH_BYTES - length, file)
    except (SourceUnavailable, SourceChanged):
        raise
    except CheckpointError as error:
        return str(error)


def _read_index(source: ByteSource) -> dict[str, str] | None:
    """The weight map, or None for a checkpoint with a single file and no index."""
    where = f"{source.where}/{INDEX_FILE}"
    if INDEX_FILE not in source.files:
        if SINGLE_FILE in source.files:
            return None
        raise CheckpointError(f"{source.where} has no weights: expected {INDEX_FILE} with its shards, or {SINGLE_FILE}")
    weight_map = read_source_json(source, INDEX_FILE).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{where}: `weight_map` must be an object that names a file for each tensor")
    for name, file in weight_map.items():
        if not isinstance(file, str) or not _is_shard_name(file):
            raise CheckpointError(
                f"{where}: {shown(name)} is in the file {shown(file)}; expected the plain name of a safetensors file "
                "in the same folder"
            )
    return weight_map


def _is_shard_name(name: str) -> bool:
    return name.endswith(".safetensors") and is_plain_name(name) and name.isprintable() and len(name.encode()) <= 255


class _Reading:
    """Collects tensors and problems, shard by shard."""

    def __init__(self, source: ByteSource, index: Mapping[str, str] | None) -> None:
        self.source, self.index = source, index
        self.tensors: dict[str, TensorEntry] = {}
        self.problems: list[str] = []
        self._unread: set[str] = set()

    def add_shard(self, file: str, header: Header | str) -> None:
        """Add the tensors of one shard, or what is wrong with it."""
        if isinstance(header, str):
            self._unread.add(file)
            self.problems.append(header)
            return
        for entry in header.entries:
            self._add_tensor(file, entry)

    def _add_tensor(self, file: str, entry: HeaderEntry) -> None:
        if entry.name in self.tensors:
            self.problems.append(f"{shown(entry.name)} is in two shards: {self.tensors[entry.name].file} and {file}")
        elif self.index is not None and entry.name not in self.index:
            self.problems.append(f"{shown(entry.name)} is in {file}, but {INDEX_FILE} does not name it")
        else:
            size = entry.end - entry.start
            self.tensors[entry.name] = TensorEntry(entry.name, file, entry.dtype, entry.shape, entry.start, size)

    def add_unkept_promises(self, index: Mapping[str, str]) -> None:
        """Tensors that are not where the index puts them; those of unreadable shards are not listed one by one."""
        for name, file in index.items():
            if name in self.tensors and self.tensors[name].file != file:
                self.problems.append(
                    f"{INDEX_FILE} puts {shown(name)} in {file}, but it is in {self.tensors[name].file}"
                )
            elif name not in self.tensors and file not in self._unread:
                self.problems.append(f"{INDEX_FILE} puts {shown(name)} in {file}, which does not hold it")

    def add_strays(self, named: set[str]) -> None:
        """Shards that the index does not name."""
        found = sorted(file for file in self.source.files if fnmatchcase(file, "model*.safetensors"))
        self.problems += [f"{file} is a shard that {INDEX_FILE} does not name" for file in found if file not in named]
