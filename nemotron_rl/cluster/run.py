"""One job from submission to its end, as its caller sees it: log lines, and an error that explains a failure."""

from __future__ import annotations

import time
from collections.abc import Callable

from nemotron_rl.cluster.diagnosis import explain
from nemotron_rl.cluster.failure import read_failure
from nemotron_rl.cluster.files import read_lines
from nemotron_rl.cluster.job import Cluster, JobHandle, JobSpec, JobState, JobStatus
from nemotron_rl.errors import JobError, NemotronRLError

_EXPLAINED_BYTES = 256 * 1024
"""How much of a log's end is searched for the reason of a failure."""


def run_job(
    cluster: Cluster,
    spec: JobSpec,
    *,
    on_log: Callable[[str], None] = lambda line: None,
    on_poll: Callable[[JobStatus], None] = lambda status: None,
    poll_seconds: float = 0.5,
) -> None:
    """Submit the job or attach to it, and follow it to its end.

    `on_log` gets every line of this attempt's log once; `on_poll` the state at each look, the final one included.
    Raises the NemotronRLError that the job reported with `report_failure`, or JobError for any other bad end.
    Whatever stops the caller (interrupt, cancelled flow, error in a callback) cancels the job and waits for its end.
    """
    submitted = False
    try:
        handle = cluster.submit(spec)
        submitted = True
        status = _follow(cluster, handle, on_log, on_poll, poll_seconds)
    except BaseException as error:
        if submitted or not isinstance(error, NemotronRLError):  # an interrupt can arrive while submit is at work
            _stop(cluster, spec, error, poll_seconds)
        raise
    if status.state is not JobState.COMPLETED:
        raise failure(handle, status)


def failure(handle: JobHandle, status: JobStatus) -> NemotronRLError:
    """The error for a job that ended badly: the job's own if it reported one, else what its log says."""
    where = f"full log: {handle.log}"
    reported = read_failure(handle.work_dir) if status.state is JobState.FAILED else None
    if reported is not None:
        reported.add_note(where)
        return reported
    code = "" if status.exit_code is None else f" with exit code {status.exit_code}"
    reason = f" ({status.reason})" if status.reason else ""
    explanation = "" if status.state is JobState.CANCELLED else explain(_log_end(handle))
    lines = [f"job {handle.key} (id {handle.id}) {status.state}{code}{reason}", *explanation.splitlines(), where]
    return JobError("\n  ".join(lines))


def _follow(
    cluster: Cluster,
    handle: JobHandle,
    on_log: Callable[[str], None],
    on_poll: Callable[[JobStatus], None],
    poll_seconds: float,
) -> JobStatus:
    offset = 0
    while True:
        status = cluster.poll(handle)  # before the log: what an ended job printed is then all there
        while True:
            text, offset = cluster.logs(handle, offset, to_end=status.state.ended)
            if not text:
                break
            for line in text.removesuffix("\n").split("\n"):
                on_log(line)
        on_poll(status)
        if status.state.ended:
            return status
        time.sleep(poll_seconds)


def _stop(cluster: Cluster, spec: JobSpec, cause: BaseException, poll_seconds: float) -> None:
    """Cancel the job, if it got as far as being submitted, and wait for its end. Never hides `cause`."""
    try:
        handle = cluster.attach(spec.key, spec.work_dir)
        if handle is None or cluster.poll(handle).state.ended:
            return
        cluster.cancel(handle)
        while not cluster.poll(handle).state.ended:
            time.sleep(poll_seconds)
    except NemotronRLError as error:
        cause.add_note(f"job {spec.key} could not be cancelled and may still be running: {error}")


def _log_end(handle: JobHandle) -> str:
    start = max(0, handle.log.stat().st_size - _EXPLAINED_BYTES) if handle.log.exists() else 0
    return read_lines(handle.log, start, to_end=True)[0]
