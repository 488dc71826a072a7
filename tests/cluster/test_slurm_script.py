"""sbatch scripts, as golden files. Rewrite them with --update-golden and review their diff."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from nemotron_rl.cluster import JobSpec, open_cluster
from nemotron_rl.cluster.slurm_script import render
from nemotron_rl.config.run import ClusterSettings
from nemotron_rl.errors import InputError

_GOLDEN = Path(__file__).parents[1] / "golden" / "cluster"
_TRAIN = ("/opt/env/bin/python", "-m", "nemotron_rl.jobs.train", "/shared/runs/r 1/request.json")
_CASES = {
    "cpu-1-node": (
        JobSpec("evaluate-0a1b", _TRAIN, Path("/shared/runs/r 1/evaluate"), cpus_per_rank=2, time_limit_minutes=0.5),
        ClusterSettings(kind="slurm"),
    ),
    "cpu-2-nodes": (
        JobSpec("train-0a1b", _TRAIN, Path("/shared/100%/train"), True, ranks=4, nodes=2, env={"NOTE": "it's $HOME"}),
        ClusterSettings(kind="slurm", nodes=2, partition="batch"),
    ),
    "gpu-16-nodes": (
        JobSpec(
            "train-0a1b", _TRAIN, Path("/shared/train"), True, ranks=128, nodes=16, cpus_per_rank=14, gpus_per_node=8
        ),
        ClusterSettings(kind="slurm", nodes=16, gpus_per_node=8, partition="h200", account="research"),
    ),
}


@pytest.mark.parametrize("name", _CASES)
def test_the_script_is_the_golden_one(name: str, request: pytest.FixtureRequest) -> None:
    script = render(*_CASES[name])
    golden = _GOLDEN / f"{name}.sbatch"
    if request.config.getoption("--update-golden", default=False):
        golden.write_text(script)
    assert script == golden.read_text()


@pytest.mark.parametrize("name", _CASES)
def test_the_script_is_valid_bash(name: str) -> None:
    subprocess.run(("bash", "-n"), input=render(*_CASES[name]), text=True, check=True)


def test_a_folder_that_sbatch_cannot_write_down_is_refused() -> None:
    with pytest.raises(InputError, match="sbatch cannot take"):
        render(JobSpec("a", ("true",), Path('/a"b')), ClusterSettings())


def test_without_slurm_the_user_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"sbatch was not found .* cluster\.kind=local"):
        open_cluster(ClusterSettings(kind="slurm"), {"PATH": str(tmp_path)})
