"""Jobs as processes of this machine. They survive the process that started them, and any later one can find them."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from nemotron_rl.cluster.environment import added, inherited
from nemotron_rl.cluster.files import ERROR_FILE, attempts, locked, read_json, read_lines
from nemotron_rl.cluster.job import JobHandle, JobSpec, JobState, JobStatus
from nemotron_rl.cluster.launch import command
from nemotron_rl.cluster.process import ProcessId, end_all, tagged
from nemotron_rl.cluster.supervisor import Plan
from nemotron_rl.errors import InputError, JobError

_TAG = "NEMOTRON_RL_JOB"
"""Environment variable that marks every process of one attempt, should its supervisor be killed."""


class LocalCluster:
    """This machine. Attempt N of a job leaves `job-N.json` (its supervisor), `job-N.log` and `job-N.exit`."""

    def __init__(self, environ: Mapping[str, str], *, grace_seconds: float = 10.0) -> None:
        """`environ`: what jobs may inherit from. `grace_seconds`: between a cancelled job's SIGTERM and SIGKILL."""
        self._environ = environ
        self._grace_seconds = grace_seconds

    def submit(self, spec: JobSpec) -> JobHandle:
        """See `Cluster.submit`."""
        if spec.nodes != 1:
            raise InputError(
                f"job {spec.key}: {spec.nodes} nodes need a cluster; set cluster.nodes=1 or cluster.kind=slurm"
            )
        argv = command(spec)
        with locked(spec.work_dir) as lock:
            latest = _latest(spec.work_dir)
            if latest is not None:
                state = self.poll(latest).state
                if not state.ended and latest.key != spec.key:
                    raise JobError(
                        f"job {spec.key}: {spec.work_dir} is in use by the running job {latest.key}; "
                        "wait for it, or give each job its own folder"
                    )
                if latest.key == spec.key and (not state.ended or state is JobState.COMPLETED):
                    return latest
                end_all(lambda: tagged(_TAG, _tag(latest)), self._grace_seconds)  # only if its supervisor was killed
            (spec.work_dir / ERROR_FILE).unlink(missing_ok=True)
            handle = JobHandle(spec.key, str(int(latest.id) + 1 if latest else 1), spec.work_dir)
            self._start(spec, argv, handle, lock)
            return handle

    def attach(self, key: str, work_dir: Path) -> JobHandle | None:
        """See `Cluster.attach`."""
        latest = _latest(work_dir.absolute())
        return latest if latest is not None and latest.key == key else None

    def poll(self, handle: JobHandle) -> JobStatus:
        """See `Cluster.poll`."""
        if _supervisor(handle).alive():  # even when the exit file is there: ended means that nothing is left
            return JobStatus(JobState.RUNNING)
        ending = read_json(handle.exit_file)
        if ending is not None:
            code = ending["exit_code"]
            return JobStatus(
                JobState(str(ending["state"])), code if isinstance(code, int) else None, str(ending["reason"])
            )
        return JobStatus(JobState.FAILED, None, "its supervisor was killed, or the machine restarted")

    def logs(self, handle: JobHandle, offset: int, *, to_end: bool = False) -> tuple[str, int]:
        """See `Cluster.logs`."""
        return read_lines(handle.log, offset, to_end=to_end)

    def cancel(self, handle: JobHandle) -> None:
        """See `Cluster.cancel`."""
        supervisor = _supervisor(handle)
        if supervisor.alive():
            os.kill(supervisor.pid, signal.SIGTERM)
        else:
            end_all(lambda: tagged(_TAG, _tag(handle)), self._grace_seconds)

    def render(self, spec: JobSpec) -> str:
        """See `Cluster.render`."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in added(spec).items()]
        return f"cd {shlex.quote(str(spec.work_dir))}\nenv {' '.join(variables)} {shlex.join(command(spec))}\n"

    def _start(self, spec: JobSpec, argv: tuple[str, ...], handle: JobHandle, lock: int) -> None:
        """Start the supervisor and return once it has put itself on record."""
        plan = Plan(
            key=spec.key,
            argv=list(argv),
            env=inherited(self._environ) | added(spec) | {_TAG: _tag(handle)},
            work_dir=str(spec.work_dir),
            record=str(_record(handle)),
            log=str(handle.log),
            exit_file=str(handle.exit_file),
            time_limit_s=spec.time_limit_minutes * 60,
            grace_s=self._grace_seconds,
        )
        started = subprocess.run(
            (sys.executable, "-P", "-m", "nemotron_rl.cluster.supervisor", str(lock)),
            input=plan.to_json(),
            capture_output=True,
            text=True,
            pass_fds=(lock,),
            start_new_session=True,
            check=False,
        )
        if not _record(handle).exists():
            raise JobError(
                f"job {spec.key}: its supervisor did not start in {spec.work_dir}:\n{started.stderr.strip()}"
            )


def _record(handle: JobHandle) -> Path:
    return handle.work_dir / f"job-{handle.id}.json"


def _tag(handle: JobHandle) -> str:
    return f"{handle.work_dir}:{handle.id}"


def _latest(work_dir: Path) -> JobHandle | None:
    """The newest attempt on record in this folder, of whatever key."""
    for number in reversed(attempts(work_dir, ".json")):
        record = read_json(work_dir / f"job-{number}.json")
        if record is not None:
            return JobHandle(str(record["key"]), str(number), work_dir)
    return None


def _supervisor(handle: JobHandle) -> ProcessId:
    """The process that keeps this attempt. Raises JobError when the folder has no record of it."""
    record = read_json(_record(handle))
    if record is None:
        raise JobError(f"job {handle.key}: {_record(handle)} is missing; was the folder removed while the job ran?")
    return ProcessId(int(str(record["pid"])), int(str(record["started"])), str(record["boot"]))
