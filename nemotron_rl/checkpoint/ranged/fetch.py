"""Carries out a plan: many requests at once, each byte written straight to its place, finished pieces remembered."""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nemotron_rl.checkpoint.progress import Meter
from nemotron_rl.checkpoint.ranged.folder import FolderSource
from nemotron_rl.checkpoint.ranged.journal import Journal
from nemotron_rl.checkpoint.ranged.plan import FetchPlan, Piece
from nemotron_rl.checkpoint.ranged.retry import Stopped, read_range
from nemotron_rl.checkpoint.ranged.source import ByteSource
from nemotron_rl.errors import InputError

_FORMAT = 1
"""Counts changes of the journal and of what is written before the pieces."""


@dataclass(frozen=True)
class Target:
    """A file to write."""

    name: str
    size: int
    """Bytes in all."""
    head: bytes = b""
    """Its first bytes, which no piece brings."""


def prepare_targets(folder: Path, targets: Sequence[Target]) -> None:
    """Make the files of `folder` with their heads and final sizes; their other bytes are still zero.

    Raises:
        InputError: The file system has not enough room.
        OSError: It refuses a write.
    """
    needed, free = sum(target.size for target in targets), shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(f"cannot write {needed:,} bytes: the file system of {folder.parent.parent} has {free:,} free")
    for target in targets:
        with (folder / target.name).open("xb") as file:
            file.write(target.head)
            file.truncate(target.size)


def plan_key(source: ByteSource, plan: FetchPlan, targets: Sequence[Target]) -> str:
    """A digest of all that decides what the targets hold."""
    digest = hashlib.sha256(repr((_FORMAT, source.where, source.revision)).encode())
    for file in sorted({piece.file for piece in plan.pieces}):
        digest.update(repr(source.files[file]).encode())
    for target in targets:
        digest.update(repr((target.name, target.size, target.head)).encode())
    for piece in plan.pieces:
        digest.update(repr(piece).encode())
    return digest.hexdigest()


def fetch(source: ByteSource, plan: FetchPlan, folder: Path, journal: Journal, meter: Meter, workers: int) -> None:
    """Fetch the pieces that the journal lacks into the prepared `folder`; the first failure stops everything.

    Memory: some MB per worker, whatever the size of the plan.

    Raises:
        SourceUnavailable: The source kept failing.
        CheckpointError: The source changed, or answers something else than it was asked for.
        InputError: The file system refuses a write.
    """
    todo = [number for number in range(len(plan.pieces)) if number not in journal.done]
    meter.add(sum(plan.pieces[number].needed for number in journal.done))
    give_up = threading.Event()
    with _open_targets(folder, [plan.pieces[number] for number in todo]) as files:
        pool = ThreadPoolExecutor(workers, thread_name_prefix="fetch")
        job = _Job(source, plan, files, journal, give_up)
        futures = {pool.submit(job.run, number): number for number in todo}
        try:
            _follow(futures, plan, meter)
        finally:
            give_up.set()
            pool.shutdown(wait=True, cancel_futures=True)


def _follow(futures: Mapping[Future[None], int], plan: FetchPlan, meter: Meter) -> None:
    for future in as_completed(futures):
        with suppress(Stopped):  # the failure that stopped it is among the others
            future.result()
            meter.add(plan.pieces[futures[future]].needed)


@dataclass(frozen=True)
class _Job:
    """What the workers share."""

    source: ByteSource
    plan: FetchPlan
    files: Mapping[str, int]
    """Open descriptors by target."""
    journal: Journal
    give_up: threading.Event

    def run(self, number: int) -> None:
        """Fetch one piece and write it down as done."""
        if self.give_up.is_set():
            raise Stopped
        piece = self.plan.pieces[number]
        try:
            if not (isinstance(self.source, FolderSource) and self.source.copy(piece, self.files)):
                writer = _PieceWriter(piece, self.files)
                read_range(self.source, piece.file, piece.start, piece.stop, writer.write, self.give_up)
            self.journal.add(number)
        except BaseException:
            self.give_up.set()
            raise


class _PieceWriter:
    """Takes a piece's bytes in order, writes those that are wanted and drops those between."""

    def __init__(self, piece: Piece, files: Mapping[str, int]) -> None:
        self._parts, self._files, self._next = piece.parts, files, 0

    def write(self, at: int, chunk: bytes | memoryview) -> None:
        """Bytes of the source file from `at` on."""
        view, end = memoryview(chunk), at + len(chunk)
        while self._next < len(self._parts):
            part = self._parts[self._next]
            start, stop = max(part.start, at), min(part.stop, end)
            if start < stop:
                piece = part.cut(start, stop)
                _write(self._files[part.target], view[start - at : stop - at], piece.offset, part.target)
            if part.stop > end:
                return
            self._next += 1


def _write(descriptor: int, data: memoryview, offset: int, name: str) -> None:
    try:
        while data:
            count = os.pwrite(descriptor, data, offset)
            data, offset = data[count:], offset + count
    except OSError as error:
        raise InputError(f"cannot write {name}: {error.strerror}") from error


def _close(descriptor: int, name: str, kind: type[BaseException] | None, *_: object) -> None:
    """Some file systems say only now that they have no room; after another error, that one is the story."""
    try:
        os.close(descriptor)
    except OSError as error:
        if kind is None:
            raise InputError(f"cannot write {name}: {error.strerror}") from error


@contextmanager
def _open_targets(folder: Path, pieces: Sequence[Piece]) -> Iterator[Mapping[str, int]]:
    """Descriptors of the targets of `pieces`."""
    with ExitStack() as stack:
        files: dict[str, int] = {}
        for name in sorted({part.target for piece in pieces for part in piece.parts}):
            try:
                files[name] = os.open(folder / name, os.O_WRONLY)
            except OSError as error:
                raise InputError(f"cannot write {name}: {error.strerror}") from error
            stack.push(partial(_close, files[name], name))
        yield files
