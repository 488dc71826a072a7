"""A local folder as a source of byte ranges. Where the file system can, the kernel copies them by itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from nemotron_rl.checkpoint.ranged.plan import Part, Piece
from nemotron_rl.checkpoint.ranged.source import STREAM_BYTES, SourceChanged, SourceFile, is_plain_name
from nemotron_rl.errors import CheckpointError
from nemotron_rl.paths import check_path


class FolderSource:
    """The visible files of a folder. A file's ETag is made of its size and the time it was last written."""

    revision: str | None = None
    workers = 2
    """More threads do not copy faster: the disk or the memory bus is the limit."""
    piece_bytes = 64 << 20
    """Repeating one costs little; long ones let the kernel copy many pages at a time."""

    def __init__(self, path: Path) -> None:
        """List `path`.

        Raises:
            CheckpointError: There is no such folder, or it cannot be read.
        """
        check_path(path)
        if not path.is_dir():
            raise CheckpointError(f"there is no checkpoint folder {path}")
        self.path, self.where = path, str(path)
        self._kernel_copies = True
        try:
            found = sorted(file for file in path.iterdir() if is_plain_name(file.name) and file.is_file())
            self.files: Mapping[str, SourceFile] = {file.name: _file(file.name, file.stat()) for file in found}
        except OSError as error:
            raise CheckpointError(f"the checkpoint folder {path} cannot be read: {error.strerror}") from error

    def read(self, file: str, start: int, stop: int) -> Iterator[memoryview]:
        """See `ByteSource.read`; nothing here is worth a second try."""
        try:
            yield from self._read(file, start, stop)
        except OSError as error:
            raise CheckpointError(f"{self.where}/{file}: cannot be read: {error.strerror}") from error

    def _read(self, file: str, start: int, stop: int) -> Iterator[memoryview]:
        buffer = memoryview(bytearray(min(STREAM_BYTES, stop - start)))
        with (self.path / file).open("rb", buffering=0) as opened:
            while start < stop:
                count = os.preadv(opened.fileno(), [buffer[: stop - start]], start)
                if not count:
                    raise SourceChanged(self.where, file, "it became shorter")
                yield buffer[:count]
                start += count
            self._check(file, opened.fileno())

    def copy(self, piece: Piece, targets: Mapping[str, int]) -> bool:
        """Copy a piece within the kernel (copy_file_range), not through this process's memory.

        Args:
            piece: What to copy.
            targets: Open descriptors by target.

        Returns:
            Whether it is copied. If not, `read` it and write it: the file systems cannot do this, or there is an error,
            which then shows by which of the two it is. They are not asked again.

        Raises:
            SourceChanged: The file is not what it was.
        """
        if not self._kernel_copies:
            return False
        try:
            with (self.path / piece.file).open("rb", buffering=0) as opened:
                copied = all(_copy(opened.fileno(), part, targets[part.target]) for part in piece.parts)
                if copied:
                    self._check(piece.file, opened.fileno())
        except OSError:
            copied = False
        if not copied:
            self._kernel_copies = False  # never set again: another thread's piece says nothing about this one
        return copied

    def _check(self, file: str, descriptor: int) -> None:
        if _file(file, os.fstat(descriptor)) != self.files[file]:
            raise SourceChanged(self.where, file, "it was written to")

    def close(self) -> None:
        """Nothing is held open."""


def _copy(source: int, part: Part, target: int) -> bool:
    """False when the kernel copied nothing: the end of the file, or a file system that only seems to be able to."""
    start, offset = part.start, part.offset
    while start < part.stop:
        count = os.copy_file_range(source, target, part.stop - start, start, offset)
        if not count:
            return False
        start, offset = start + count, offset + count
    return True


def _file(name: str, state: os.stat_result) -> SourceFile:
    return SourceFile(name, state.st_size, f"{state.st_size:x}-{state.st_mtime_ns:x}")
