"""Following a job: its lines, its errors, and its end when the one who follows is stopped."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from nemotron_rl.cluster import JobSpec, JobState, JobStatus, run_job
from nemotron_rl.cluster.local import LocalCluster
from nemotron_rl.errors import DataError, InputError, JobError

MakeSpec = Callable[..., JobSpec]
LeftOver = Callable[[], list[str]]
pytestmark = pytest.mark.usefixtures("left_over")
_POLL = 0.05


def test_every_line_arrives_once_and_the_last_state_is_seen(cluster: LocalCluster, job: MakeSpec) -> None:
    lines: list[str] = []
    states: list[JobStatus] = []
    spec = job("print('one'); print(); print('three', end='')")
    run_job(cluster, spec, on_log=lines.append, on_poll=states.append, poll_seconds=_POLL)
    assert lines == ["one", "", "three"]
    assert states[-1] == JobStatus(JobState.COMPLETED, 0)


def test_a_failure_shows_its_exception_and_where_the_log_is(cluster: LocalCluster, job: MakeSpec) -> None:
    spec = job("def f():\n    raise KeyError('weights')\nf()")
    with pytest.raises(JobError) as caught:
        run_job(cluster, spec, poll_seconds=_POLL)
    message = str(caught.value)
    assert "job job-a (id 1) failed with exit code 1" in message
    assert "KeyError: 'weights'" in message and "line 2, in f" in message
    assert f"full log: {spec.work_dir}/job-1.log" in message


_REPORTING = """
from pathlib import Path
from nemotron_rl.cluster import report_failure
from nemotron_rl.errors import DataError
with report_failure(Path.cwd()):
    if not Path("fixed").exists():
        raise DataError("prompts.jsonl, line 3: not JSON")
"""


def test_a_users_mistake_found_inside_a_job_is_raised_as_such(cluster: LocalCluster, job: MakeSpec) -> None:
    spec = job(_REPORTING)
    with pytest.raises(DataError, match="line 3") as caught:
        run_job(cluster, spec, poll_seconds=_POLL)
    assert caught.value.exit_code == 2
    (spec.work_dir / "fixed").touch()
    run_job(cluster, spec, poll_seconds=_POLL)
    assert not (spec.work_dir / "error.json").exists()


class Terminated(BaseException):
    """As Prefect's TerminationSignal: not an Exception."""


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Terminated, ValueError])
def test_whatever_stops_the_follower_ends_the_job_first(
    cluster: LocalCluster, job: MakeSpec, left_over: LeftOver, kind: type[BaseException]
) -> None:
    spec = job("import time; print('up', flush=True); time.sleep(60)")

    def stop(line: str) -> None:
        raise kind(line)

    with pytest.raises(kind, match="up"):
        run_job(cluster, spec, on_log=stop, poll_seconds=_POLL)
    assert left_over() == []
    handle = cluster.attach(spec.key, spec.work_dir)
    assert handle is not None and cluster.poll(handle).state is JobState.CANCELLED


def test_a_refused_job_is_not_cancelled_in_its_place(cluster: LocalCluster, job: MakeSpec) -> None:
    running = cluster.submit(job("import time; time.sleep(60)"))
    with pytest.raises(InputError):
        run_job(cluster, job("", distributed=True, ranks=2, nodes=2), poll_seconds=_POLL)
    assert cluster.poll(running).state is JobState.RUNNING
    cluster.cancel(running)
    while not cluster.poll(running).state.ended:
        pass


def test_a_time_limit_is_named(cluster: LocalCluster, job: MakeSpec) -> None:
    spec = job("import time; time.sleep(60)", time_limit_minutes=0.3 / 60)
    with pytest.raises(JobError, match="timed out"):
        run_job(cluster, spec, poll_seconds=_POLL)


def test_two_ranks_meet_and_the_failing_one_is_quoted(cluster: LocalCluster, job: MakeSpec) -> None:
    program = """
        import os, torch.distributed as dist
        dist.init_process_group("gloo")
        os.write(1, f"rank {dist.get_rank()} of {dist.get_world_size()}\\n".encode())
        dist.barrier()
        if dist.get_rank() == 1:
            raise ValueError("only rank 1")
        dist.barrier()
        """
    lines: list[str] = []
    with pytest.raises(JobError, match=r"rank 1: ValueError: only rank 1"):
        run_job(cluster, job(program, distributed=True, ranks=2), on_log=lines.append, poll_seconds=_POLL)
    assert {"rank 0 of 2", "rank 1 of 2"} <= set(lines)


def test_a_flow_process_can_follow_without_importing_torch() -> None:
    code = "import nemotron_rl.cluster, sys; sys.exit('torch' in sys.modules or 'prefect' in sys.modules)"
    subprocess.run((sys.executable, "-c", code), check=True)
