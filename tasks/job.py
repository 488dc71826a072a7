"""Runs a stage as a job of the cluster and follows its metrics. What the job does is in nemotron_rl.jobs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nemotron_rl.cluster import Cluster, JobSpec, JobState, JobStatus, open_cluster, run_job
from nemotron_rl.config.settings import Settings
from nemotron_rl.errors import InputError
from nemotron_rl.gates.measures import Metrics
from nemotron_rl.jobs.requests import METRICS_FILE, Request
from nemotron_rl.report.metrics import MetricsTail
from tasks.progress import reporter
from tasks.stage import Facts, Recipe, fresh_folder, work_dir

JOBS = "nemotron_rl.jobs"
"""Package of the jobs' modules; a stage's module has the stage's name."""
KEY_FILE = "job.key"


def _ignore(metrics: Metrics) -> None:
    """Nobody else wants to know."""


@dataclass(frozen=True)
class StageJob:
    """A stage that runs as a job."""

    stage: str
    settings: Settings
    recipe: Recipe
    steps: int
    """How many metrics lines the job writes in all."""
    distributed: bool = True
    """Under torchrun on all ranks, or one plain process."""
    ranks: int | None = None
    """Ranks of a distributed one; None is those of the trainer."""
    on_step: Callable[[Metrics], None] = field(default=_ignore)
    """Told about every line of metrics."""

    def run(self, kind: type[Request], out: Path, **inputs: object) -> Facts:
        """Run the job, or follow the one that an earlier try started, until `out` holds its results.

        Args:
            kind: The job's request.
            out: The folder for its results.
            inputs: The request's fields beyond those that all requests have.

        Raises:
            NemotronRLError: What the job reported, or JobError when it ended badly without a word.
            InputError: The run had this job done before, and its results were deleted.
        """
        cluster, spec = open_cluster(self.settings.cluster), self._spec()
        metrics = spec.work_dir / METRICS_FILE
        if not _is_under_way(cluster, spec):
            fresh_folder(out)
            metrics.unlink(missing_ok=True)
        elif not out.is_dir():
            raise InputError(
                f"the job {spec.key} of this run has completed, but its results are neither in {out} nor in the store\n"
                f"  Use another run_id, or delete {spec.work_dir}."
            )
        request = kind.model_validate({"settings": self.settings, "out": out, "metrics": metrics, **inputs})
        request.write(spec.work_dir / "request.json")
        (spec.work_dir / KEY_FILE).write_text(spec.key)
        follower = _Follower(self, MetricsTail(metrics))
        run_job(cluster, spec, on_poll=follower.look, poll_seconds=self.settings.cluster.poll_seconds)
        if metrics.exists():
            shutil.copyfile(metrics, out / METRICS_FILE)
        return {"steps": follower.seen, "last_step": dict(follower.last)}

    def _spec(self) -> JobSpec:
        cluster, folder = self.settings.cluster, work_dir(self.settings, self.stage)
        ranks = self.ranks or self.settings.parallel.world_size
        return JobSpec(
            key=f"{self.settings.run_id}.{self.stage}.{self.recipe.digest[:12]}",
            argv=(sys.executable, "-m", f"{JOBS}.{self.stage}", str(folder / "request.json")),
            work_dir=folder,
            distributed=self.distributed,
            ranks=ranks if self.distributed else 1,
            nodes=cluster.nodes if self.distributed else 1,
            cpus_per_rank=cluster.cpus_per_rank,
            gpus_per_node=cluster.gpus_per_node,
            time_limit_minutes=cluster.time_limit_minutes,
        )


def cancel_jobs(settings: Settings) -> list[str]:
    """Ask for the end of every job of the run that has not ended, and return their keys. Harmless without one."""
    cluster = open_cluster(settings.cluster)
    cancelled = []
    for file in sorted(settings.run_dir.absolute().glob(f"*/{KEY_FILE}")):
        handle = cluster.attach(file.read_text(), file.parent)
        if handle is not None and not cluster.poll(handle).state.ended:
            cluster.cancel(handle)
            cancelled.append(handle.key)
    return cancelled


def _is_under_way(cluster: Cluster, spec: JobSpec) -> bool:
    """Whether an earlier try's job is live or completed, so that its folder must be left alone."""
    handle = cluster.attach(spec.key, spec.work_dir)
    if handle is None:
        return False
    state = cluster.poll(handle).state
    return not state.ended or state is JobState.COMPLETED


class _Follower:
    """Passes a job's metrics on, each line once."""

    def __init__(self, job: StageJob, tail: MetricsTail) -> None:
        self.seen = 0
        self.last: Metrics = {}
        self._job = job
        self._tail = tail

    def look(self, status: JobStatus) -> None:
        if status.state is JobState.PENDING:
            reporter().advance(self._job.stage, 0, self._job.steps, f"waiting in the queue {status.reason}".strip())
        for metrics in self._tail.new():
            self.seen, self.last = self.seen + 1, metrics
            reporter().advance(self._job.stage, self.seen, self._job.steps)
            reporter().step(self._job.stage, metrics)
            self._job.on_step(metrics)
