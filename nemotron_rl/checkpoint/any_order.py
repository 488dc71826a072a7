"""Writes safetensors shards whose tensors arrive in any order, each straight to its place: nothing is held back.

`writer.py` is for tensors that come in the order of the plan; a trainer gives them in an order of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from nemotron_rl.checkpoint.new_folder import writing
from nemotron_rl.checkpoint.writer import Shard, Spec, write_index


@dataclass(frozen=True)
class _Place:
    """Where a tensor's bytes go."""

    shard: Shard
    offset: int
    """First byte, counted from the beginning of the file."""
    spec: Spec


class AnyOrderWriter:
    """Writes every tensor of a plan once, in any order. A context manager; the index comes last.

    The files have their final sizes from the start, so only the index says that they are complete. Pair it with
    `new_folder`, so that a failed writer leaves nothing.
    """

    def __init__(self, folder: Path, shards: Sequence[Shard]) -> None:
        """Write into `folder`, which exists."""
        self._folder, self._shards = folder, shards
        self._left = {place.spec.name: place for shard in shards for place in _places(shard)}
        self._open = ExitStack()
        self._files: dict[str, int] = {}

    def __enter__(self) -> Self:
        """Make the files: their headers, and room for the tensors.

        Raises:
            InputError: The file system refuses.
        """
        with self._open:
            for shard in self._shards:
                self._files[shard.file] = self._make(shard)
            self._open = self._open.pop_all()
        return self

    @property
    def missing(self) -> list[str]:
        """Tensors that have not been written yet, in the order of the plan."""
        return list(self._left)

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Write a tensor of the plan.

        Raises:
            InputError: The file system refuses the write.
            ValueError: Not a tensor of the plan, one that was written before, or another number of bytes: a fault of
                the caller.
        """
        if name not in self._left:
            raise ValueError(f"{name} is not in the plan, or was written before")
        place, view = self._left[name], memoryview(data).cast("B")
        if len(view) != place.spec.nbytes:
            raise ValueError(f"{name} needs {place.spec.nbytes} bytes, got {len(view)}")
        with writing(self._folder / place.shard.file):
            _write_at(self._files[place.shard.file], view, place.offset)
        del self._left[name]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Close the files and, when all went well, write the index.

        Raises:
            ValueError: A tensor of the plan was not written: a fault of the caller.
            InputError: The file system refuses.
        """
        with writing(self._folder):
            self._open.close()
        if kind is not None:
            return
        if self._left:
            raise ValueError(f"{len(self._left)} tensors of the plan were not written; the first is {self.missing[0]}")
        with writing(self._folder):
            write_index(self._folder, self._shards)

    def _make(self, shard: Shard) -> int:
        """A file with its header and final size; its descriptor, closed with the writer."""
        with writing(self._folder / shard.file):
            descriptor = os.open(self._folder / shard.file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            self._open.callback(os.close, descriptor)
            _write_at(descriptor, memoryview(shard.header), 0)
            os.ftruncate(descriptor, len(shard.header) + sum(spec.nbytes for spec in shard.tensors))
        return descriptor


def _places(shard: Shard) -> Iterable[_Place]:
    offset = len(shard.header)
    for spec in shard.tensors:
        yield _Place(shard, offset, spec)
        offset += spec.nbytes


def _write_at(descriptor: int, data: memoryview, offset: int) -> None:
    while data:
        count = os.pwrite(descriptor, data, offset)
        data, offset = data[count:], offset + count
