"""Reward 1 for an answer that is mathematically equal to the label. The algebra runs in a process of its own.

math-verify 0.9.0 limits its time with SIGALRM, which works in a main thread only, and sympy can hang inside C code
where no signal reaches it. A worker process has a main thread, and can be ended.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from types import TracebackType
from typing import Self

WORKER = "nemotron_rl.reward.math_worker"


class MathReward:
    """Callable reward with one worker process, started by the first call and again after one that had to be ended.

    Calls from several threads take turns. The worker ends with `close`, or when this process does.
    """

    def __init__(self, timeout_s: float = 10.0, startup_s: float = 120.0) -> None:
        self.timeout_s = timeout_s
        """Longest time for one answer; a slower one scores 0."""
        self.startup_s = startup_s
        """Longest time for the worker to import its libraries."""
        self._lock = threading.Lock()
        self._worker: subprocess.Popen[bytes] | None = None

    def __call__(self, response: str, label: str) -> float:
        """1.0 when the response's final answer equals the label, else 0.0, also when it cannot be parsed in time."""
        with self._lock:
            worker = self._running()
            assert worker.stdin is not None
            worker.stdin.write(json.dumps([response, label]).encode() + b"\n")
            worker.stdin.flush()
            answer = self._read(worker, self.timeout_s)
            if answer is None:
                self._end(worker)
                return 0.0
            return float(json.loads(answer))

    def close(self) -> None:
        """End the worker and wait for it. May be called again."""
        with self._lock:
            if self._worker is not None:
                self._end(self._worker)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._worker is not None and self._worker.poll() is None:
            return self._worker
        return self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", WORKER]
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._worker = worker
        if self._read(worker, self.startup_s) is None:
            self._end(worker)
            raise RuntimeError(f"{WORKER} was not ready within {self.startup_s:g} s; its errors are in this log, above")
        return worker

    def _read(self, worker: subprocess.Popen[bytes], timeout_s: float) -> bytes | None:
        """The worker's next line, or None when it does not come in time or the worker has ended."""
        assert worker.stdout is not None
        deadline = time.monotonic() + timeout_s
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([worker.stdout], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(worker.stdout.fileno(), 4096) if ready else b""
            if not chunk:
                return None
            line += chunk
        return line

    def _end(self, worker: subprocess.Popen[bytes]) -> None:
        self._worker = None
        worker.kill()
        worker.communicate()
