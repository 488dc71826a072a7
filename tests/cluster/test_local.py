"""Local jobs outlive their submitter, run once per key, and leave nothing behind when they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nemotron_rl.cluster import JobHandle, JobSpec, JobState, JobStatus
from nemotron_rl.cluster.files import read_json
from nemotron_rl.cluster.local import LocalCluster
from nemotron_rl.errors import InputError, JobError

MakeSpec = Callable[..., JobSpec]
LeftOver = Callable[[], list[str]]
pytestmark = pytest.mark.usefixtures("left_over")


def end(cluster: LocalCluster, handle: JobHandle) -> JobStatus:
    deadline = time.monotonic() + 30
    while not (status := cluster.poll(handle)).state.ended:
        assert time.monotonic() < deadline, status
        time.sleep(0.02)
    return status


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_job_runs_in_its_folder_with_its_environment(cluster: LocalCluster, job: MakeSpec) -> None:
    spec = job(
        "import os; print(os.getcwd(), os.environ['COLOUR'], os.environ['OMP_NUM_THREADS'])", env={"COLOUR": "red"}
    )
    handle = cluster.submit(spec)
    assert end(cluster, handle) == JobStatus(JobState.COMPLETED, 0)
    assert cluster.logs(handle, 0)[0] == f"{spec.work_dir} red 1\n"


def test_a_completed_job_is_not_run_again(cluster: LocalCluster, job: MakeSpec) -> None:
    spec = job("open('runs', 'a').write('x')")
    first = cluster.submit(spec)
    end(cluster, first)
    assert cluster.submit(spec) == first == cluster.attach(spec.key, spec.work_dir)
    assert (spec.work_dir / "runs").read_text() == "x"


def test_a_failed_job_is_started_again_with_a_log_of_its_own(cluster: LocalCluster, job: MakeSpec) -> None:
    spec = job("import os, sys; print('here'); sys.exit(0 if os.path.exists('again') else os.mkdir('again') or 3)")
    first = cluster.submit(spec)
    assert end(cluster, first) == JobStatus(JobState.FAILED, 3)
    second = cluster.submit(spec)
    assert end(cluster, second) == JobStatus(JobState.COMPLETED, 0)
    assert (first.log.read_text(), second.log.read_text()) == ("here\n", "here\n")
    assert cluster.poll(first).state is JobState.FAILED


def test_simultaneous_submissions_start_one_job(cluster: LocalCluster, job: MakeSpec) -> None:
    spec = job("open('runs', 'a').write('x'); import time; time.sleep(0.5)")
    with ThreadPoolExecutor(4) as pool:
        handles = list(pool.map(lambda _: cluster.submit(spec), range(4)))
    assert len(set(handles)) == 1
    end(cluster, handles[0])
    assert (spec.work_dir / "runs").read_text() == "x"


_SUBMITTER = """
import os, sys, time
from pathlib import Path
from nemotron_rl.cluster import JobSpec
from nemotron_rl.cluster.local import LocalCluster
work = Path(sys.argv[1])
LocalCluster(os.environ).submit(JobSpec("job-a", (sys.executable, sys.argv[2]), work))
print("submitted", flush=True)
time.sleep(60)
"""


def test_a_job_survives_the_kill_of_its_submitter_and_is_found_again(cluster: LocalCluster, job: MakeSpec) -> None:
    spec = job("import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.02)\nprint('done')")
    submitter = subprocess.Popen(
        (sys.executable, "-c", _SUBMITTER, str(spec.work_dir), spec.argv[1]),
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert submitter.stdout is not None and submitter.stdout.readline() == b"submitted\n"
    os.killpg(submitter.pid, signal.SIGKILL)
    submitter.communicate()
    handle = cluster.attach(spec.key, spec.work_dir)
    assert handle is not None and cluster.poll(handle).state is JobState.RUNNING
    assert cluster.submit(spec) == handle
    (spec.work_dir / "go").touch()
    assert end(cluster, handle).state is JobState.COMPLETED
    assert cluster.logs(handle, 0)[0] == "done\n"


_STUBBORN_TREE = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = "import os, signal, time; signal.signal(15, signal.SIG_IGN); os.write(1, b'up\\\\n'); time.sleep(60)"
subprocess.Popen((sys.executable, "-c", child), start_new_session=True)  # as torchrun starts its workers
subprocess.Popen((sys.executable, "-c", child))
time.sleep(60)
"""


def test_cancelling_leaves_no_process_of_any_session(cluster: LocalCluster, job: MakeSpec, left_over: LeftOver) -> None:
    handle = cluster.submit(job(_STUBBORN_TREE))
    wait_for(lambda: cluster.logs(handle, 0)[0] == "up\nup\n")
    cluster.cancel(handle)
    assert end(cluster, handle) == JobStatus(JobState.CANCELLED, None, "received SIGTERM")
    assert left_over() == []
    cluster.cancel(handle)  # harmless


def test_what_a_job_leaves_running_ends_with_it(cluster: LocalCluster, job: MakeSpec) -> None:
    program = "import subprocess; subprocess.Popen(('sleep', '60'), start_new_session=True)"
    assert end(cluster, cluster.submit(job(program))).state is JobState.COMPLETED


def test_a_job_is_ended_at_its_time_limit(cluster: LocalCluster, job: MakeSpec) -> None:
    handle = cluster.submit(job("import time; time.sleep(60)", time_limit_minutes=0.5 / 60))
    status = end(cluster, handle)
    assert status.state is JobState.TIMEOUT
    assert "time limit" in status.reason


def test_a_killed_supervisor_is_a_failure_and_its_job_does_not_run_beside_the_next_one(
    cluster: LocalCluster, job: MakeSpec, left_over: LeftOver
) -> None:
    spec = job("import pathlib, time\nprint('up', flush=True)\nif not pathlib.Path('go').exists(): time.sleep(60)")
    first = cluster.submit(spec)
    wait_for(lambda: cluster.logs(first, 0)[0] == "up\n")
    record = read_json(spec.work_dir / "job-1.json")
    assert record is not None
    os.kill(int(str(record["pid"])), signal.SIGKILL)
    wait_for(lambda: cluster.poll(first).state.ended)
    assert "supervisor was killed" in cluster.poll(first).reason
    (spec.work_dir / "go").touch()
    second = cluster.submit(spec)
    assert len([seen for seen in left_over() if f"{spec.work_dir}:1" in seen]) == 0
    assert end(cluster, second).state is JobState.COMPLETED


def test_a_job_killed_by_a_signal_says_which(cluster: LocalCluster, job: MakeSpec) -> None:
    assert end(cluster, cluster.submit(job("import os; os.kill(os.getpid(), 9)"))).exit_code == 137


def test_a_program_that_is_missing_fails_with_its_name(cluster: LocalCluster, job: MakeSpec) -> None:
    status = end(cluster, cluster.submit(job("", argv=("no-such-program",))))
    assert (status.state, status.exit_code) == (JobState.FAILED, 127)
    assert "no-such-program" in status.reason


def test_one_folder_holds_one_running_job(cluster: LocalCluster, job: MakeSpec) -> None:
    handle = cluster.submit(job("import time; time.sleep(60)"))
    with pytest.raises(JobError, match="in use by the running job job-a"):
        cluster.submit(job("", key="job-b"))
    assert cluster.attach("job-b", handle.work_dir) is None
    cluster.cancel(handle)
    end(cluster, handle)
    assert end(cluster, cluster.submit(job("", key="job-b"))).state is JobState.COMPLETED


def test_several_nodes_are_refused_before_anything_is_written(cluster: LocalCluster, job: MakeSpec) -> None:
    spec = job("", distributed=True, ranks=2, nodes=2)
    with pytest.raises(InputError, match=r"kind=slurm"):
        cluster.submit(spec)
    assert not spec.work_dir.exists()


def test_what_would_run_can_be_read(cluster: LocalCluster, job: MakeSpec, tmp_path: Path) -> None:
    text = cluster.render(job("", argv=("echo", "a b")))
    assert text == f"cd {tmp_path}/work\nenv OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1 echo 'a b'\n"
