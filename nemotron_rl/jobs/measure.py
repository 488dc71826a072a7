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

import psutil

from nemotron_rl.errors import NemotronRLError


class Phases:
    """Seconds per named phase of one step, and memory in use after each."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._memory: dict[str, float] = {}
        self._start = time.perf_counter()

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Adds the block's time to the phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - start
            self._memory[name] = used_memory_gib()

    def metrics(self) -> dict[str, float]:
        """`time/{phase}_s` of each phase and `time/step_s` since the step began."""
        times = {f"time/{name}_s": seconds for name, seconds in self._seconds.items()}
        return times | {"time/step_s": time.perf_counter() - self._start}

    def memory(self) -> dict[str, float]:
        """`memory/after_{phase}_gib` of each phase, and `memory/total_gib` of the same device or host."""
        used = {f"memory/after_{name}_gib": gib for name, gib in self._memory.items()}
        return used | {"memory/total_gib": total_memory_gib()}


def peak_memory_gib() -> float:
    """Largest resident set of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # Linux counts in KiB


def used_memory_gib() -> float:
    """On a GPU what all processes use of it now; else this process's resident set."""
    device = _device_memory()
    return psutil.Process().memory_info().rss / 2**30 if device is None else (device[1] - device[0]) / 2**30


def total_memory_gib() -> float:
    """All memory of the GPU, else of the host."""
    device = _device_memory()
    return (psutil.virtual_memory().total if device is None else device[1]) / 2**30


def peak_metrics() -> dict[str, float]:
    """This process's largest memory so far, on the host and, where there is one, on its GPU."""
    metrics = {"memory/peak_rss_gib": peak_memory_gib()}
    if _device_memory() is not None:
        metrics["memory/trainer_peak_gib"] = sys.modules["torch"].cuda.max_memory_allocated() / 2**30
    return metrics


def _device_memory() -> tuple[int, int] | None:
    """Free and all bytes of this process's GPU; a process that has not imported torch has nothing on one."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    found: tuple[int, int] = torch.cuda.mem_get_info()
    return found


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
