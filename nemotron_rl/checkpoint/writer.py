"""Writes safetensors shards and their index, streaming: a tensor is never held whole, a shard never twice.

The tensors' names and sizes are known before the first byte, so every header is written up front and never again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, Self

from nemotron_rl.checkpoint.layout import INDEX_FILE
from nemotron_rl.checkpoint.safetensors_header import format_header
from nemotron_rl.errors import InputError

DEFAULT_SHARD_SIZE = 5_000_000_000
"""Bytes of tensors per shard."""
_METADATA = {"format": "pt"}  # transformers refuses a file without it


class Spec(Protocol):
    """What has to be known of a tensor before it is written."""

    @property
    def name(self) -> str:
        """Name in the checkpoint."""

    @property
    def dtype(self) -> str:
        """Safetensors code."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes, outermost first."""

    @property
    def nbytes(self) -> int:
        """Bytes of data."""


@dataclass(frozen=True)
class Shard:
    """One file to write."""

    file: str
    tensors: tuple[Spec, ...]

    @property
    def header(self) -> bytes:
        """What comes before the tensors' bytes."""
        return format_header([(t.name, t.dtype, t.shape) for t in self.tensors], _METADATA)


def plan_shards(tensors: Iterable[Spec], shard_size: int) -> tuple[Shard, ...]:
    """Cut `tensors`, in their order, into files of at most `shard_size` bytes; a larger tensor has a file to itself.

    Raises:
        InputError: `shard_size` is not positive.
    """
    if shard_size < 1:
        raise InputError(f"the shard size must be at least 1 byte, not {shard_size}")
    groups: list[list[Spec]] = [[]]
    room = shard_size
    for tensor in tensors:
        if groups[-1] and tensor.nbytes > room:
            groups.append([])
            room = shard_size
        groups[-1].append(tensor)
        room -= tensor.nbytes
    total = len(groups)
    return tuple(Shard(f"model-{n:05d}-of-{total:05d}.safetensors", tuple(group)) for n, group in enumerate(groups, 1))


class ShardWriter:
    """Writes the tensors of a plan, in its order, into a folder. A context manager; the index comes last."""

    def __init__(self, folder: Path, shards: Sequence[Shard]) -> None:
        """Write into `folder`, which exists; pair it with `new_folder`, so that a failed writer leaves nothing."""
        self._folder, self._shards = folder, shards
        self._todo = [(shard, tensor) for shard in shards for tensor in shard.tensors]
        self._next = 0
        self._file: BinaryIO | None = None
        self._open_shard: Shard | None = None

    def __enter__(self) -> Self:
        """Nothing is written yet."""
        return self

    def write(self, name: str, chunks: Iterable[bytes | memoryview]) -> None:
        """Write the next tensor of the plan.

        Raises:
            InputError: The file system refuses the write.
            ValueError: Not the next tensor, or more or fewer bytes than its shape needs: a fault of the caller.
        """
        shard, tensor = self._todo[self._next] if self._next < len(self._todo) else (None, None)
        if shard is None or tensor is None or tensor.name != name:
            raise ValueError(f"expected {tensor.name if tensor else 'no more tensors'}, got {name}")
        file = self._shard_file(shard)
        written = 0
        for chunk in chunks:
            with self._writing(shard.file):
                file.write(chunk)
            written += len(chunk)
        if written != tensor.nbytes:
            raise ValueError(f"{name} needs {tensor.nbytes} bytes, got {written}")
        self._next += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Close the last shard and, when all went well, write the index."""
        if kind is not None:
            with suppress(OSError):  # closing flushes, which fails again on a full disk: the first error is the story
                self._close()
            return
        self._close()
        if self._next != len(self._todo):
            raise ValueError(f"{len(self._todo) - self._next} tensors of the plan were not written")
        with self._writing(INDEX_FILE):
            write_index(self._folder, self._shards)

    def _shard_file(self, shard: Shard) -> BinaryIO:
        if self._open_shard is not shard or self._file is None:
            self._close()
            with self._writing(shard.file):
                self._file = (self._folder / shard.file).open("xb")
                self._open_shard = shard
                self._file.write(shard.header)
        return self._file

    def _close(self) -> None:
        if self._file is not None and self._open_shard is not None:
            file, self._file = self._file, None
            with self._writing(self._open_shard.file):
                file.close()

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(f"cannot write {self._folder / name}: {error.strerror}") from error


def write_index(folder: Path, shards: Sequence[Shard]) -> None:
    """The index of `shards`; its total_size is the sum of the tensors' bytes."""
    weight_map = {tensor.name: shard.file for shard in shards for tensor in shard.tensors}
    total = sum(tensor.nbytes for shard in shards for tensor in shard.tensors)
    write_json(folder / INDEX_FILE, {"metadata": {"total_size": total}, "weight_map": weight_map})


def write_json(path: Path, value: object) -> None:
    """JSON as Hugging Face formats it: two spaces and a newline at the end."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
