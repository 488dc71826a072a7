"""Files of a job's folder: lock, atomic JSON, and log lines. Knows nothing about clusters."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from nemotron_rl.errors import InputError

ERROR_FILE = "error.json"
_CHUNK = 1 << 20


@contextmanager
def locked(work_dir: Path) -> Iterator[int]:
    """Create the folder and hold its lock; yields the lock's file descriptor, which a child may inherit and hold on to.

    Raises InputError when the folder cannot be created or written.
    """
    try:
        work_dir.mkdir(parents=True, exist_ok=True)
        lock = os.open(work_dir / "job.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InputError(
            f"job folder {work_dir}: {error.strerror}; choose an output folder that can be written"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock
    finally:
        os.close(lock)  # not LOCK_UN: a child that inherited the descriptor keeps the lock until it closes its copy


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """Write so that a reader sees the whole text or no file; the last of several writers wins."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}")  # ranks of several nodes may write at once
    partial.write_text(json.dumps(value) + "\n")
    partial.replace(path)


def read_json(path: Path) -> dict[str, object] | None:
    """What `write_json` wrote, or None when there is no file."""
    try:
        return dict(json.loads(path.read_text()))
    except FileNotFoundError:
        return None


def attempts(work_dir: Path, suffix: str) -> list[int]:
    """Ids of the attempts that have a file `job-ID{suffix}`, oldest first."""
    names = (path.name.removeprefix("job-").removesuffix(suffix) for path in work_dir.glob(f"job-*{suffix}"))
    return sorted(int(name) for name in names if name.isdigit())


def read_lines(path: Path, offset: int, *, to_end: bool = False, chunk: int = _CHUNK) -> tuple[str, int]:
    """Whole lines from byte `offset` on: about `chunk` bytes, or one line if that is longer.

    Bytes that are not UTF-8 become U+FFFD. No file yet, or nothing new: ("", offset).
    """
    try:
        with path.open("rb") as log:
            log.seek(offset)
            data = log.read(chunk)
            while data and b"\n" not in data and (more := log.read(chunk)):
                data += more
            at_end = not log.read(1)
    except FileNotFoundError:
        return "", offset
    if not (to_end and at_end):
        data = data[: data.rfind(b"\n") + 1]
    return data.decode(errors="replace"), offset + len(data)
