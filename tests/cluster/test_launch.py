"""The command lines of plain and distributed jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from nemotron_rl.cluster import JobSpec
from nemotron_rl.cluster.environment import added, inherited
from nemotron_rl.cluster.launch import command
from nemotron_rl.errors import InputError

_MODULE = ("python", "-m", "some.module", "request.json")


def test_a_plain_job_runs_its_command_as_it_is() -> None:
    assert command(JobSpec("a", ("echo", "b c"), Path("w"))) == ("echo", "b c")


def test_ranks_of_one_node_meet_on_loopback_at_a_free_port() -> None:
    argv = command(JobSpec("a", _MODULE, Path("w"), distributed=True, ranks=2))
    assert argv[:5] == ("python", "-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=2")
    assert "--rdzv-endpoint=127.0.0.1:0" in argv
    assert argv[-3:] == ("-m", "some.module", "request.json")


def test_nodes_get_the_same_command_and_a_fixed_order() -> None:
    argv = command(JobSpec("a", _MODULE, Path("w"), distributed=True, ranks=8, nodes=4))
    assert {"--nnodes=4", "--nproc-per-node=2", "--rdzv-backend=static"} <= set(argv)
    assert not any(part.startswith("--rdzv-endpoint") for part in argv)


def test_a_script_can_be_distributed_and_another_program_cannot() -> None:
    assert command(JobSpec("a", ("python", "x.py"), Path("w"), distributed=True))[-1] == "x.py"
    with pytest.raises(InputError, match="'-m', module"):
        command(JobSpec("a", ("sleep", "1"), Path("w"), distributed=True))


def test_a_job_inherits_only_what_is_listed() -> None:
    environ = {"PATH": "/bin", "AWS_PROFILE": "p", "NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "0", "SECRET": "s"}
    assert inherited(environ) == {"PATH": "/bin", "AWS_PROFILE": "p", "NCCL_DEBUG": "INFO"}


def test_threads_follow_the_cpus_unless_the_job_says_otherwise() -> None:
    spec = JobSpec("a", _MODULE, Path("w"), cpus_per_rank=3)
    assert added(spec)["OMP_NUM_THREADS"] == "3"
    assert added(JobSpec("a", _MODULE, Path("w"), env={"OMP_NUM_THREADS": "1"}))["OMP_NUM_THREADS"] == "1"


def test_only_one_node_jobs_bind_gloo_to_loopback() -> None:
    one = JobSpec("a", _MODULE, Path("w"), distributed=True, ranks=2)
    two = JobSpec("a", _MODULE, Path("w"), distributed=True, ranks=2, nodes=2)
    assert added(one)["GLOO_SOCKET_IFNAME"] == "lo"
    assert "GLOO_SOCKET_IFNAME" not in added(two)
