"""Jobs on a Slurm cluster, through its commands. The job's folder must be on a file system that all nodes share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nemotron_rl.cluster import slurm_script
from nemotron_rl.cluster.environment import inherited
from nemotron_rl.cluster.files import ERROR_FILE, attempts, locked, read_json, read_lines
from nemotron_rl.cluster.job import JobHandle, JobSpec, JobState, JobStatus
from nemotron_rl.cluster.slurm_cli import SlurmCli
from nemotron_rl.config.run import ClusterSettings

_STATES = {
    "PENDING": JobState.PENDING,
    "CONFIGURING": JobState.PENDING,
    "REQUEUED": JobState.PENDING,
    "REQUEUE_HOLD": JobState.PENDING,
    "REQUEUE_FED": JobState.PENDING,
    "RESV_DEL_HOLD": JobState.PENDING,
    "SPECIAL_EXIT": JobState.PENDING,
    "RUNNING": JobState.RUNNING,
    "SUSPENDED": JobState.RUNNING,
    "STOPPED": JobState.RUNNING,
    "RESIZING": JobState.RUNNING,
    "SIGNALING": JobState.RUNNING,
    "STAGE_OUT": JobState.RUNNING,
    "COMPLETING": JobState.RUNNING,  # how it ends, or whether it is requeued, is not decided yet
    "COMPLETED": JobState.COMPLETED,
    "CANCELLED": JobState.CANCELLED,
    "TIMEOUT": JobState.TIMEOUT,
    "DEADLINE": JobState.TIMEOUT,
}
"""Slurm's words; those that are missing here (FAILED, NODE_FAIL, OUT_OF_MEMORY, …) mean FAILED."""


class SlurmCluster:
    """sbatch and its companions. A job is found again by its name, which is its key, and its folder."""

    def __init__(
        self, settings: ClusterSettings, environ: Mapping[str, str], *, patience_seconds: float = 600.0
    ) -> None:
        """`environ`: what jobs may inherit from. `patience_seconds`: how long a silent controller is asked again.

        Raises InputError when Slurm's commands are not installed.
        """
        self._settings = settings
        self._environ = dict(environ)
        self._cli = SlurmCli(environ, patience_seconds=patience_seconds)

    def submit(self, spec: JobSpec) -> JobHandle:
        """See `Cluster.submit`."""
        script = self.render(spec)
        with locked(spec.work_dir):
            return self._cli.patiently(lambda: self._attach_or_submit(spec, script))

    def attach(self, key: str, work_dir: Path) -> JobHandle | None:
        """See `Cluster.attach`."""
        return self._cli.patiently(lambda: self._find(key, work_dir.absolute()))

    def poll(self, handle: JobHandle) -> JobStatus:
        """See `Cluster.poll`."""
        return self._cli.patiently(lambda: self._status(handle))

    def logs(self, handle: JobHandle, offset: int, *, to_end: bool = False) -> tuple[str, int]:
        """See `Cluster.logs`."""
        return read_lines(handle.log, offset, to_end=to_end)

    def cancel(self, handle: JobHandle) -> None:
        """See `Cluster.cancel`."""
        self._cli.patiently(lambda: self._cli.cancel(handle.id))

    def render(self, spec: JobSpec) -> str:
        """See `Cluster.render`: the sbatch script."""
        return slurm_script.render(spec, self._settings)

    def _attach_or_submit(self, spec: JobSpec, script: str) -> JobHandle:
        """One try. Looks before it submits, so a retry after an unanswered sbatch finds the job that was accepted."""
        found = self._find(spec.key, spec.work_dir)
        if found is not None:
            state = self._status(found).state
            if not state.ended or state is JobState.COMPLETED:
                return found
        (spec.work_dir / ERROR_FILE).unlink(missing_ok=True)
        path = spec.work_dir / "job.sbatch"
        path.write_text(script)
        return JobHandle(spec.key, self._cli.submit(path, inherited(self._environ)), spec.work_dir)

    def _find(self, key: str, work_dir: Path) -> JobHandle | None:
        """The live job of this name and folder, or else the newest one that left a file in the folder."""
        for job in self._cli.named(key):
            known = self._cli.show(job)
            if known is not None and known.work_dir == str(work_dir):
                return JobHandle(key, job, work_dir)
        for number in reversed(attempts(work_dir, ".exit")):
            handle = JobHandle(key, str(number), work_dir)
            ending = read_json(handle.exit_file)
            if ending is not None and ending["key"] == key:
                return handle
        return None

    def _status(self, handle: JobHandle) -> JobStatus:
        """From the controller; when it has forgotten the job, from the job's exit file, and then from accounting."""
        known = self._cli.show(handle.id)
        if known is not None and known.name == handle.key:  # ids start over when a controller loses its state
            return _translate(known.state, known.exit_code, known.reason)
        ending = read_json(handle.exit_file)
        if ending is not None:
            code = int(str(ending["exit_code"]))
            return JobStatus(JobState.FAILED if code else JobState.COMPLETED, code)
        accounted = self._cli.accounted(handle.id)
        if accounted is not None:
            return _translate(*accounted, "")
        return JobStatus(JobState.FAILED, None, f"Slurm has forgotten job {handle.id}, and it left no exit code")


def _translate(state: str, exit_code: int, reason: str) -> JobStatus:
    ours = _STATES.get(state, JobState.FAILED)
    words = [
        word for word in (state if ours is JobState.FAILED else "", reason) if word and word not in ("None", "FAILED")
    ]
    return JobStatus(ours, exit_code if ours in (JobState.COMPLETED, JobState.FAILED) else None, ", ".join(words))
