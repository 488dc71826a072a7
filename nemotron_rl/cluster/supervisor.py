"""Keeps one local job: starts it, bounds its time, ends its whole process tree, writes how it ended.

`python -m nemotron_rl.cluster.supervisor LOCK_FD` reads a Plan as JSON on stdin. It detaches from whoever started it,
so that the job survives, and closes stdout once the job is on record. Started by `local.py` only.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from nemotron_rl.cluster.files import write_json
from nemotron_rl.cluster.job import JobState, JobStatus
from nemotron_rl.cluster.process import ProcessId, adopt_orphans, descendants, end_all

_WATCHED = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGCHLD})


@dataclass(frozen=True)
class Plan:
    """What the supervisor is told. It travels through a pipe, so that the environment's secrets touch no disk."""

    key: str
    argv: list[str]
    env: dict[str, str]
    work_dir: str
    record: str
    log: str
    exit_file: str
    time_limit_s: float
    grace_s: float

    def to_json(self) -> str:
        """The text that the supervisor reads on stdin."""
        return json.dumps(asdict(self))


def main() -> None:
    """Detach, put the job on record, keep it to its end."""
    lock, plan = int(sys.argv[1]), Plan(**json.load(sys.stdin))
    if os.fork():
        os._exit(0)  # its parent reaps this process at once; the grandchild is nobody's zombie
    os.setsid()
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    adopt_orphans()
    log = os.open(plan.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    me = ProcessId.of(os.getpid())
    write_json(Path(plan.record), {"key": plan.key, **(asdict(me) if me else {})})
    os.close(lock)
    _let_go_of_parent(log)
    status = _keep(plan)
    end_all(_living_descendants, plan.grace_s)
    write_json(Path(plan.exit_file), {"key": plan.key, **asdict(status)})


def _let_go_of_parent(log: int) -> None:
    """Point the standard streams away from the parent's pipes; what goes wrong from here on is in the job's log."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(null)
    os.close(log)


def _keep(plan: Plan) -> JobStatus:
    """Run the command until it ends, its time is up, or a signal asks for its end."""
    os.chdir(plan.work_dir)
    deadline = time.monotonic() + plan.time_limit_s
    try:
        job = os.posix_spawnp(
            plan.argv[0], plan.argv, plan.env, setsid=True, setsigmask=(), setsigdef=(signal.SIGPIPE, signal.SIGXFSZ)
        )
    except OSError as error:
        return JobStatus(JobState.FAILED, 127, f"cannot start {plan.argv[0]}: {error.strerror}")
    while True:
        if (code := _reap(job)) is not None:
            return JobStatus(JobState.FAILED if code else JobState.COMPLETED, code)
        left = deadline - time.monotonic()
        if left <= 0:
            return JobStatus(JobState.TIMEOUT, None, f"reached its time limit of {plan.time_limit_s / 60:g} minutes")
        signalled = signal.sigtimedwait(_WATCHED, left)
        if signalled and signalled.si_signo != signal.SIGCHLD:
            return JobStatus(JobState.CANCELLED, None, f"received {signal.Signals(signalled.si_signo).name}")


def _reap(job: int | None = None) -> int | None:
    """Collect every child that ended, adopted ones too; the exit code of `job` if it was among them."""
    code = None
    while True:
        try:
            pid, wait_status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == job:
            code = os.waitstatus_to_exitcode(wait_status)
            code = 128 - code if code < 0 else code


def _living_descendants() -> list[psutil.Process]:
    _reap()
    return descendants()


if __name__ == "__main__":
    main()
