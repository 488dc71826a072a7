"""Slurm's commands as typed calls. A controller that is busy or restarting can be asked again, patiently."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import tenacity

from nemotron_rl.errors import InputError, JobError

_TRANSIENT = re.compile(
    r"Unable to contact slurm controller|Socket timed out|Connection (refused|reset|timed out)|Zero Bytes|"
    r"Transport endpoint|temporarily unable|Resource temporarily unavailable|communication connection failure|"
    r"Slurm controller not responding|Slurm backup controller|Message receive failure|in standby mode",
    re.IGNORECASE,
)
_UNKNOWN_JOB = re.compile(r"Invalid job id|No job found|does not exist", re.IGNORECASE)
_COMMAND_SECONDS = 60.0


class SlurmUnavailable(JobError):
    """The controller did not answer; asking again later may work."""


@dataclass(frozen=True)
class SlurmJob:
    """What Slurm itself says about a job."""

    id: str
    name: str
    state: str
    """Slurm's word, such as PENDING or NODE_FAIL."""
    exit_code: int
    """128 + signal number if a signal ended it."""
    reason: str
    """Slurm's word; "None" when there is nothing to say."""
    work_dir: str


class SlurmCli:
    """Runs sbatch, squeue, scontrol, sacct and scancel in the given environment."""

    def __init__(self, environ: Mapping[str, str], *, patience_seconds: float) -> None:
        """Raises InputError without sbatch. `patience_seconds`: how long a silent controller is asked again."""
        self._environ = dict(environ)
        self._patience_seconds = patience_seconds
        if self._which("sbatch") is None:
            raise InputError(
                "cluster.kind=slurm: sbatch was not found on PATH; run on a Slurm login node, load its module, "
                "or use cluster.kind=local"
            )

    def patiently[T](self, ask: Callable[[], T]) -> T:
        """`ask`, again and again while the controller is unavailable. Raises SlurmUnavailable when patience ends."""
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(SlurmUnavailable),
            wait=tenacity.wait_exponential(multiplier=0.5, max=15),
            stop=tenacity.stop_after_delay(self._patience_seconds),
            reraise=True,
        )
        return retrying(ask)

    def submit(self, script: Path, environ: Mapping[str, str]) -> str:
        """Submit a script and return the job's id. The job gets `environ` as it is."""
        out = self._run("sbatch", "--parsable", "--export=ALL", str(script), environ=environ)
        return out.strip().split(";")[0]

    def named(self, name: str) -> list[str]:
        """Ids of the live jobs of this name, newest first. Always fresh, unlike accounting."""
        out = self._run("squeue", "--noheader", "--me", f"--name={name}", "--format=%A")
        return sorted(out.split(), key=int, reverse=True)

    def show(self, job: str) -> SlurmJob | None:
        """What the controller remembers of a job; None once it has forgotten it (MinJobAge after its end)."""
        try:
            text = self._run("scontrol", "--oneliner", "show", "job", job)
        except JobError as error:
            if _UNKNOWN_JOB.search(str(error)):
                return None
            raise
        status, _, signal = _field(text, "ExitCode").partition(":")
        code = 128 + int(signal) if int(signal or 0) else int(status)
        work_dir = re.search(r" WorkDir=(.*?) (?:StdErr|AdminComment|Comment|StdIn)=", text)  # may hold spaces
        return SlurmJob(
            id=job,
            name=_field(text, "JobName"),
            state=_field(text, "JobState"),
            exit_code=code,
            reason=_field(text, "Reason"),
            work_dir=work_dir[1] if work_dir else "",
        )

    def accounted(self, job: str) -> tuple[str, int] | None:
        """State and exit code from the accounting database; None where there is none or it lacks the job."""
        if self._which("sacct") is None:
            return None
        command = ("sacct", "-X", "--noheader", "--parsable2", f"--jobs={job}", "--format=State,ExitCode")
        done = self._call(command, self._environ)
        row = done.stdout.strip().splitlines()[-1:] if done.returncode == 0 else []
        if not row:
            return None
        state, code = row[0].split("|")
        status, _, signal = code.partition(":")
        return state.split()[0], 128 + int(signal) if int(signal or 0) else int(status)  # "CANCELLED by 1000"

    def cancel(self, job: str) -> None:
        """scancel; no error for a job that is already over."""
        try:
            self._run("scancel", job)
        except JobError as error:
            if not _UNKNOWN_JOB.search(str(error)):
                raise

    def _which(self, program: str) -> str | None:
        return shutil.which(program, path=self._environ.get("PATH", ""))

    def _run(self, *command: str, environ: Mapping[str, str] | None = None) -> str:
        done = self._call(command, environ or self._environ)
        if done.returncode == 0:
            return done.stdout
        kind = SlurmUnavailable if _TRANSIENT.search(done.stderr) else JobError
        raise kind(f"{' '.join(command)}: {done.stderr.strip() or f'exit code {done.returncode}'}")

    def _call(self, command: tuple[str, ...], environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                command, env=dict(environ), capture_output=True, text=True, check=False, timeout=_COMMAND_SECONDS
            )
        except subprocess.TimeoutExpired as error:
            raise SlurmUnavailable(f"{' '.join(command)}: no answer within {_COMMAND_SECONDS:g} s") from error


def _field(text: str, name: str) -> str:
    found = re.search(rf"(?:^| ){name}=(\S*)", text)
    return found[1] if found else ""
