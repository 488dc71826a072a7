"""What a job is and what a cluster can do with one. Where it runs is decided by the classes that keep this protocol."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from nemotron_rl.errors import InputError

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True)
class JobSpec:
    """A command, and what it needs.

    Raises InputError when the key cannot name a job, or when the ranks do not fit the nodes.
    """

    key: str
    """Names the work; together with `work_dir` it identifies the job. Letters, digits, `.`, `_` and `-`."""
    argv: tuple[str, ...]
    """(python, "-m", module, args…) or any other command; a distributed job needs the Python form."""
    work_dir: Path
    """The job's working directory. Its log, exit code and error report are here, so one folder holds one job."""
    distributed: bool = False
    """Start `ranks` copies under torchrun; otherwise one plain process."""
    ranks: int = 1
    """Processes in all."""
    nodes: int = 1
    """Machines; ranks are spread evenly over them."""
    cpus_per_rank: int = 1
    """CPU cores, and threads, of each rank."""
    gpus_per_node: int = 0
    """GPUs of each machine; 0 asks for none."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the job's environment. A Slurm script shows these in plain text, so secrets do not belong here."""
    time_limit_minutes: float = 240
    """Longest run; the job is ended after that."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "work_dir", self.work_dir.absolute())
        if not _KEY.fullmatch(self.key):
            raise InputError(f"job key {self.key!r}: expected 1 to 128 letters, digits, '.', '_' or '-'")
        if not self.argv:
            raise InputError(f"job {self.key}: the command is empty")
        if min(self.ranks, self.nodes, self.cpus_per_rank) < 1 or self.ranks % self.nodes:
            raise InputError(
                f"job {self.key}: {self.ranks} ranks do not spread evenly over {self.nodes} nodes; "
                "make parallel.world_size, and rollout.ranks if there are any, multiples of cluster.nodes"
            )
        if not self.distributed and self.ranks != 1:
            raise InputError(f"job {self.key}: {self.ranks} ranks need distributed=True")

    @property
    def ranks_per_node(self) -> int:
        """Processes on each machine."""
        return self.ranks // self.nodes


class JobState(StrEnum):
    """Where a job is in its life."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timed out"

    @property
    def ended(self) -> bool:
        """Whether nothing of the job is left running."""
        return self not in (JobState.PENDING, JobState.RUNNING)


@dataclass(frozen=True)
class JobStatus:
    """What is known about a job now."""

    state: JobState
    exit_code: int | None = None
    """128 + signal number when a signal ended it; None when it has none."""
    reason: str = ""
    """The cluster's own words, such as why a job waits or was ended."""


@dataclass(frozen=True)
class JobHandle:
    """One attempt at a job: enough to follow it from any process, also after the one that started it died."""

    key: str
    id: str
    """Slurm's job id, or the number of the local attempt."""
    work_dir: Path

    @property
    def log(self) -> Path:
        """The file with everything that the job printed."""
        return self.work_dir / f"job-{self.id}.log"

    @property
    def exit_file(self) -> Path:
        """Written by the job's own keeper when it ended; absent when the keeper was killed."""
        return self.work_dir / f"job-{self.id}.exit"


class Cluster(Protocol):
    """A place where jobs run. Callers cannot tell one from another."""

    def submit(self, spec: JobSpec) -> JobHandle:
        """Start the job, unless one with this key and folder is live or completed: then return that one."""

    def attach(self, key: str, work_dir: Path) -> JobHandle | None:
        """The latest attempt at this job, in whatever state; None if it was never started."""

    def poll(self, handle: JobHandle) -> JobStatus:
        """The job's state now."""

    def logs(self, handle: JobHandle, offset: int, *, to_end: bool = False) -> tuple[str, int]:
        """Whole lines of the log from byte `offset` on, at most about 1 MiB, and the offset to continue from.

        `to_end` also returns a last line that has no newline: for jobs that have ended.
        """

    def cancel(self, handle: JobHandle) -> None:
        """Ask for the job's end and return at once; `poll` tells when it is over. Harmless when it has ended."""

    def render(self, spec: JobSpec) -> str:
        """What `submit` would run, as text for a dry run."""
