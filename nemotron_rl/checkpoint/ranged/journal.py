"""A folder that is filled piece by piece, survives a kill, and appears complete or not at all.

Beside the destination lies `.NAME.partial` with `files` (what has arrived, at its final place) and `journal` (which
pieces are done). The journal's first line says what is being made: another plan or another state of the source starts
anew. So does a restart of the machine, which may have lost what the kernel had not written yet.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nemotron_rl.checkpoint.new_folder import check_new_folder, made_folders, writing
from nemotron_rl.checkpoint.ranged.source import SourceUnavailable
from nemotron_rl.errors import InputError

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_WORTH_KEEPING = (SourceUnavailable, KeyboardInterrupt, SystemExit)


class Journal:
    """Which pieces are done. Threads may add to it at once."""

    def __init__(self, descriptor: int, done: frozenset[int], dst: Path) -> None:
        """`descriptor` appends to the journal's file; `dst` is what errors are about."""
        self.done = done
        """Pieces that were done when it was opened, by number."""
        self._descriptor, self._dst = descriptor, dst
        self._lock = threading.Lock()

    def add(self, piece: int) -> None:
        """The bytes of this piece have been written.

        Raises:
            InputError: The file system refuses it.
        """
        line = b"%d\n" % piece
        with self._lock, writing(self._dst):
            if os.write(self._descriptor, line) != len(line):  # the next line would be read as the rest of this one
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def resumable_folder(dst: Path, key: str, prepare: Callable[[Path], None]) -> Iterator[tuple[Path, Journal]]:
    """A folder to fill and its journal; it becomes `dst` when the block ends.

    When the process dies, the source cannot be reached or the user interrupts, what has been written stays and the next
    call with the same `key` gets it. Any other failure removes it.

    Args:
        dst: A folder that does not exist or is empty.
        key: Names what is made: plan and state of the source.
        prepare: Fills an empty folder with files that have their final sizes; run when there is nothing to resume.

    Raises:
        InputError: `dst` cannot be written or is taken, somebody else is writing it, or the disk is full.
    """
    partial = dst.absolute().parent / f".{dst.name}.partial"
    _sweep(dst, partial)
    check_new_folder(dst)
    made = made_folders(dst)
    with writing(dst):
        partial.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(partial / "journal", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        _lock(descriptor, dst, partial)
        try:
            check_new_folder(dst)  # again: another process may have finished it before the lock was ours
            with writing(dst):
                done = _resume(descriptor, partial, f"{key} {_boot()}", prepare)
            yield partial / "files", Journal(descriptor, done, dst)
            with writing(dst):
                (partial / "files").rename(dst)
        except _WORTH_KEEPING:
            raise
        except BaseException:
            _remove(partial)
            for folder in made:
                with suppress(OSError):  # somebody else may have put something there
                    folder.rmdir()
            raise
        _remove(partial)
    finally:
        os.close(descriptor)


def _resume(descriptor: int, partial: Path, key: str, prepare: Callable[[Path], None]) -> frozenset[int]:
    """The pieces that are done; with none the folder is made anew."""
    files = partial / "files"
    first, *rest = os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode(errors="replace").split("\n")
    if first == key and rest and files.is_dir():
        return frozenset(int(line) for line in rest[:-1] if line.isdecimal())  # the last may have been cut off
    os.ftruncate(descriptor, 0)
    shutil.rmtree(files, ignore_errors=True)
    files.mkdir()
    prepare(files)
    os.write(descriptor, f"{key}\n".encode())
    return frozenset()


def _lock(descriptor: int, dst: Path, partial: Path) -> None:
    """Two processes that write one folder would finish it twice. Where the file system has no locks, none is taken."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InputError(f"another process is writing {dst}; wait for it, or choose another folder") from error
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise InputError(f"cannot lock {partial}: {error.strerror}") from error
    try:
        still_there = os.path.samestat(os.fstat(descriptor), (partial / "journal").stat())
    except FileNotFoundError:
        still_there = False
    if not still_there:
        raise InputError(f"another process has just finished writing {dst}")


def _sweep(dst: Path, partial: Path) -> None:
    """Remove what a process leaves that is killed after `dst` was complete."""
    complete = dst.is_dir() and any(dst.iterdir())
    if complete and partial.is_dir() and not (partial / "files").exists():
        _remove(partial)


def _remove(partial: Path) -> None:
    shutil.rmtree(partial / "files", ignore_errors=True)  # first, so that what is left has nothing to resume
    shutil.rmtree(partial, ignore_errors=True)


def _boot() -> str:
    return _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""
