"""What a job measures about itself: time per phase, memory, and one JSON line per step."""

from __future__ import annotations

import contextlib
import json
import math
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from nemotron_rl.errors import NemotronRLError


class Phases:
    """Seconds per named phase of one step."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._start = time.perf_counter()

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Adds the block's time to the phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - start

    def metrics(self) -> dict[str, float]:
        """`time/{phase}_s` of each phase and `time/step_s` since the step began."""
        times = {f"time/{name}_s": seconds for name, seconds in self._seconds.items()}
        return times | {"time/step_s": time.perf_counter() - self._start}


def peak_memory_gib() -> float:
    """Largest resident set of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # Linux counts in KiB


def memory_metrics() -> dict[str, float]:
    """This process's largest memory so far; on a GPU also its own there, and what all processes use there now."""
    metrics = {"memory/peak_rss_gib": peak_memory_gib()}
    torch = sys.modules.get("torch")  # a process that has not imported it has nothing on a GPU
    if torch is not None and torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        metrics |= {
            "memory/device_used_gib": (total - free) / 2**30,
            "memory/trainer_peak_gib": torch.cuda.max_memory_allocated() / 2**30,
        }
    return metrics


class MetricsLog:
    """Appends one JSON object per step; writes nothing when `writes` is false, as on all ranks but the first."""

    def __init__(self, path: Path, writes: bool = True) -> None:
        self._file = path.open("a", encoding="utf-8") if writes else None

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """One step's metrics.

        Raises:
            NemotronRLError: after writing, when one is not finite: the run must not go on.
        """
        if self._file is not None:
            self._file.write(json.dumps({"step": step, **metrics}) + "\n")
            self._file.flush()
        broken = [name for name, value in metrics.items() if not math.isfinite(value)]
        if broken:
            raise NemotronRLError(f"step {step}: {', '.join(broken)} is not a finite number; the run stops here")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()
