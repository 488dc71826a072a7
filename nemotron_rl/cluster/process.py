"""Processes by identity rather than by a pid that may be reused, and the end of whole process trees. Linux only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

_PR_SET_CHILD_SUBREAPER = 36
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class ProcessId:
    """One process of one boot of one machine; never another that got the same pid later."""

    pid: int
    started: int
    """Start time in clock ticks after boot, from /proc: unlike a wall-clock time it never shifts."""
    boot: str

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """The process that has this pid now; None if there is none, or only a zombie."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return None
        state, *fields = stat.rpartition(")")[2].split()  # the name before ")" may itself hold spaces and brackets
        return None if state in "ZX" else cls(pid, int(fields[18]), _BOOT_ID.read_text().strip())

    def alive(self) -> bool:
        """Whether it still runs."""
        return ProcessId.of(self.pid) == self


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose own parent dies, so that none can escape it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def descendants() -> list[psutil.Process]:
    """Everything below this process, zombies included."""
    return psutil.Process().children(recursive=True)


def tagged(name: str, value: str) -> list[psutil.Process]:
    """Other processes that were started with the environment variable `name` set to `value`."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            if process.pid != os.getpid() and process.environ().get(name) == value:
                found.append(process)
    return found


def end_all(remaining: Callable[[], Iterable[psutil.Process]], grace_seconds: float) -> None:
    """SIGTERM to all that `remaining` finds, SIGKILL to those left after the grace; returns when it finds none."""
    asked: set[psutil.Process] = set()
    deadline = time.monotonic() + grace_seconds
    while processes := list(remaining()):
        late = time.monotonic() > deadline
        for process in processes:
            if late or process not in asked:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGKILL if late else signal.SIGTERM)
                asked.add(process)
        time.sleep(0.02)
