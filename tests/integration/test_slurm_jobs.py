"""Jobs on a real Slurm of two nodes behave as the protocol promises."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nemotron_rl.cluster import JobHandle, JobSpec, JobState, JobStatus, run_job
from nemotron_rl.cluster.slurm import SlurmCluster
from nemotron_rl.config.run import ClusterSettings
from nemotron_rl.errors import DataError, JobError
from tests.integration.services.daemon import wait_until
from tests.integration.services.slurm import Slurm, slurm_cluster

pytestmark = pytest.mark.integration
MakeSpec = Callable[..., JobSpec]
_SETTINGS = ClusterSettings(kind="slurm")
_POLL = 0.1


@pytest.fixture
def cluster(slurm: Slurm) -> SlurmCluster:
    return SlurmCluster(_SETTINGS, slurm.environ | {"SECRET": "s3cret", "AWS_PROFILE": "p"}, patience_seconds=30)


@pytest.fixture
def job(tmp_path: Path) -> MakeSpec:
    """A job that runs the given Python text in a folder with a difficult name."""

    def make(program: str, **changes: object) -> JobSpec:
        script = tmp_path / "program.py"
        script.write_text(textwrap.dedent(program))
        values = {"key": f"job-{tmp_path.name}", "argv": (sys.executable, str(script)), "work_dir": tmp_path / "a b%j"}
        return JobSpec(**(values | changes))  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="module")
def overdue(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> JobHandle:
    """A job that will exceed its limit. Slurm counts in minutes, so it starts early and is looked at last."""
    spec = JobSpec("overdue", ("sleep", "600"), tmp_path_factory.mktemp("overdue"), time_limit_minutes=1)
    return SlurmCluster(_SETTINGS, slurm.environ).submit(spec)


def end(cluster: SlurmCluster, handle: JobHandle, seconds: float = 60) -> JobStatus:
    wait_until(lambda: cluster.poll(handle).state.ended, f"the end of {handle}", seconds)
    return cluster.poll(handle)


@pytest.mark.usefixtures("overdue")
def test_a_job_runs_in_its_folder_and_sees_only_listed_variables(cluster: SlurmCluster, job: MakeSpec) -> None:
    spec = job("import os; print(os.getcwd()); print(os.environ['AWS_PROFILE'], os.environ.get('SECRET'))")
    lines: list[str] = []
    run_job(cluster, spec, on_log=lines.append, poll_seconds=_POLL)
    assert lines == [str(spec.work_dir), "p None"]


def test_a_completed_job_is_not_submitted_again(cluster: SlurmCluster, job: MakeSpec) -> None:
    spec = job("open('runs', 'a').write('x')")
    first = cluster.submit(spec)
    assert end(cluster, first) == JobStatus(JobState.COMPLETED, 0)
    assert cluster.submit(spec) == first == cluster.attach(spec.key, spec.work_dir)
    assert (spec.work_dir / "runs").read_text() == "x"


def test_simultaneous_submissions_make_one_job_that_any_process_finds(
    slurm: Slurm, cluster: SlurmCluster, job: MakeSpec
) -> None:
    spec = job("import time; time.sleep(60)")
    with ThreadPoolExecutor(3) as pool:
        handles = set(pool.map(lambda _: cluster.submit(spec), range(3)))
    assert len(handles) == 1
    assert handles == {SlurmCluster(_SETTINGS, slurm.environ).attach(spec.key, spec.work_dir)}
    assert slurm.run("squeue", "--noheader", f"--name={spec.key}", "--format=%A") == handles.pop().id
    assert cluster.attach(spec.key, spec.work_dir / "elsewhere") is None


def test_a_failed_job_says_why_and_is_started_again(cluster: SlurmCluster, job: MakeSpec) -> None:
    spec = job("import os\nif not os.path.exists('fixed'): raise KeyError('weights')")
    with pytest.raises(JobError, match=r"failed with exit code 1 .*\n  KeyError: 'weights'"):
        run_job(cluster, spec, poll_seconds=_POLL)
    (spec.work_dir / "fixed").touch()
    run_job(cluster, spec, poll_seconds=_POLL)


def test_a_users_mistake_keeps_its_class(cluster: SlurmCluster, job: MakeSpec) -> None:
    program = """
        from pathlib import Path
        from nemotron_rl.cluster import report_failure
        from nemotron_rl.errors import DataError
        with report_failure(Path.cwd()):
            raise DataError("line 3")
        """
    with pytest.raises(DataError, match="line 3"):
        run_job(cluster, job(program), poll_seconds=_POLL)


def test_stopping_the_follower_cancels_the_job(slurm: Slurm, cluster: SlurmCluster, job: MakeSpec) -> None:
    spec = job("import time; print('up', flush=True); time.sleep(60)")

    def stop(line: str) -> None:
        raise KeyboardInterrupt(line)

    with pytest.raises(KeyboardInterrupt, match="up"):
        run_job(cluster, spec, on_log=stop, poll_seconds=_POLL)
    assert slurm.run("squeue", "--noheader", f"--name={spec.key}") == ""
    jobs = slurm.run("squeue", "--noheader", "--states=all", f"--name={spec.key}", "--format=%T")
    assert jobs == "CANCELLED"


def test_a_requeued_job_starts_over_and_is_followed_to_its_end(
    slurm: Slurm, cluster: SlurmCluster, job: MakeSpec
) -> None:
    spec = job("import os, time; print('start', os.environ.get('SLURM_RESTART_COUNT', 0), flush=True); time.sleep(3)")
    handle = cluster.submit(spec)
    wait_until(lambda: "start" in cluster.logs(handle, 0)[0], "the first start")
    slurm.run("scontrol", "requeue", handle.id)
    # Slurm holds a requeued job back for a while, to be sure that its nodes are clean.
    assert end(cluster, handle, 180) == JobStatus(JobState.COMPLETED, 0)
    assert [line for line in cluster.logs(handle, 0)[0].splitlines() if line.startswith("start")] == [
        "start 0",
        "start 1",
    ]


_ALL_RANKS = """
    import os, torch, torch.distributed as dist
    dist.init_process_group("gloo")
    total = torch.ones(1)
    dist.all_reduce(total)
    os.write(1, f"rank {dist.get_rank()} node {os.environ['SLURM_NODEID']} sum {total.item():g}\\n".encode())
    dist.barrier()
    if "FAIL" in os.environ and dist.get_rank() == 3:
        raise ValueError("only rank 3")
    dist.barrier()
    """


def test_ranks_of_two_nodes_meet_in_a_fixed_order(cluster: SlurmCluster, job: MakeSpec) -> None:
    spec = job(_ALL_RANKS, distributed=True, ranks=4, nodes=2, env={"GLOO_SOCKET_IFNAME": "lo"})
    lines: list[str] = []
    run_job(cluster, spec, on_log=lines.append, poll_seconds=_POLL)
    told = sorted(line for line in lines if line.startswith("rank"))
    assert told == [f"rank {rank} node {rank // 2} sum 4" for rank in range(4)]


def test_the_failing_rank_of_another_node_is_quoted(slurm: Slurm, cluster: SlurmCluster, job: MakeSpec) -> None:
    spec = job(_ALL_RANKS, distributed=True, ranks=4, nodes=2, env={"GLOO_SOCKET_IFNAME": "lo", "FAIL": "1"})
    with pytest.raises(JobError, match="rank 3: ValueError: only rank 3"):
        run_job(cluster, spec, poll_seconds=_POLL)
    assert slurm.run("squeue", "--noheader", f"--name={spec.key}") == ""


def test_gpus_are_asked_for(cluster: SlurmCluster, job: MakeSpec) -> None:
    lines: list[str] = []
    spec = job("import os; print(os.environ['CUDA_VISIBLE_DEVICES'])", gpus_per_node=2)
    run_job(cluster, spec, on_log=lines.append, poll_seconds=_POLL)
    assert lines == ["0,1"]


def test_what_slurm_refuses_is_an_error_in_its_own_words(slurm: Slurm, job: MakeSpec) -> None:
    cluster = SlurmCluster(ClusterSettings(kind="slurm", partition="nowhere"), slurm.environ)
    with pytest.raises(JobError, match="invalid partition"):
        cluster.submit(job(""))


def test_a_job_is_followed_through_a_restart_of_the_controller(job: MakeSpec) -> None:
    with slurm_cluster(nodes=1, min_job_age=2, controller=False) as slurm:
        cluster = SlurmCluster(_SETTINGS, slurm.environ, patience_seconds=60)
        with slurm.controller():
            wait_until(lambda: slurm.idle_nodes() == 1, "an idle node")
            handle = cluster.submit(job("import time; time.sleep(5); print('done')"))
            wait_until(lambda: cluster.poll(handle).state is JobState.RUNNING, "the job's start")
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(cluster.poll, handle)
            time.sleep(2)
            assert not answer.done()
            with slurm.controller():
                assert answer.result(60).state is JobState.RUNNING
                assert end(cluster, handle) == JobStatus(JobState.COMPLETED, 0)
                wait_until(lambda: cluster._cli.show(handle.id) is None, "Slurm to forget the job", 120)
                assert cluster.poll(handle) == JobStatus(JobState.COMPLETED, 0)
                assert cluster.submit(job("")) == handle


def test_a_silent_controller_is_an_error_when_patience_ends(job: MakeSpec) -> None:
    with slurm_cluster(nodes=1, controller=False) as slurm:
        cluster = SlurmCluster(_SETTINGS, slurm.environ, patience_seconds=1)
        with pytest.raises(JobError, match="Unable to contact slurm controller"):
            cluster.submit(job(""))


def test_a_job_is_ended_at_its_time_limit(cluster: SlurmCluster, overdue: JobHandle) -> None:
    assert end(cluster, overdue, 180).state is JobState.TIMEOUT
