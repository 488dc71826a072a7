"""Notices that a process of an engine died, while the trainer may be waiting for its answer for ever.

SGLang's own watchdog sends its parent a signal whose handler needs the main thread; one that waits in a collective or
for the dead engine never gets there. This thread needs nobody.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence

import psutil

_PERIOD_S = 1.0


class EngineWatch:
    """Watches processes until `stop`; when one is gone, it ends the others and calls `on_death` once."""

    def __init__(self, processes: Sequence[psutil.Process], on_death: Callable[[str], None]) -> None:
        self._processes, self._on_death = list(processes), on_death
        self._names = {process.pid: process.name() for process in processes}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="engine-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; the processes are about to end as they should."""
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(_PERIOD_S):
            dead = next((process for process in self._processes if not _runs(process)), None)
            if dead is not None:
                for process in self._processes:
                    if _runs(process):
                        process.kill()
                self._on_death(
                    f"the engine's process {self._names[dead.pid]} (pid {dead.pid}) is gone; see the job's log"
                )
                return


def end_process(message: str) -> None:
    """Say what happened and end this process at once: the main thread may hang, and cannot be told otherwise."""
    import os

    print(f"EngineDied: {message}", file=sys.stderr, flush=True)
    os._exit(1)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
