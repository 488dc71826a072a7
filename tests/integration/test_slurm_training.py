"""A training job that Slurm requeues goes on from what it saved, and ends with the bits of one left alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from nemotron_rl.cluster import JobSpec, JobState
from nemotron_rl.cluster.slurm import SlurmCluster
from nemotron_rl.config.run import ClusterSettings
from nemotron_rl.store.steps import StepStore
from tests.integration.services.daemon import wait_until
from tests.integration.services.slurm import Slurm
from tests.jobs.killing import outcome, prepare
from tests.jobs.ranks import rank_server

STEPS = 12


@pytest.mark.integration
@pytest.mark.slow
def test_a_requeued_training_goes_on_from_its_newest_checkpoint(slurm: Slurm, tmp_path: Path) -> None:
    with rank_server(tmp_path / "server.log") as ranks:
        setup = prepare(tmp_path / "runs", ranks, steps=STEPS)
        undisturbed = outcome(setup.run_alone(ranks))
    request = setup.request("requeued")
    run = setup.work / "requeued"
    spec = JobSpec(
        key="requeued",
        argv=(sys.executable, "-m", "nemotron_rl.jobs.train", str(request)),
        work_dir=run / "train",
        distributed=True,
        ranks=2,
        env={"OMP_NUM_THREADS": "1"},
    )
    cluster = SlurmCluster(ClusterSettings(kind="slurm"), slurm.environ, patience_seconds=30)
    saved = StepStore(run / "checkpoints")
    handle = cluster.submit(spec)
    wait_until(lambda: bool(saved.complete()) or cluster.poll(handle).state.ended, "the first checkpoint", 180)
    slurm.run("scontrol", "requeue", handle.id)
    kept = max(saved.complete())
    wait_until(lambda: cluster.poll(handle).state.ended, "the end of the requeued job", 400)
    assert cluster.poll(handle).state is JobState.COMPLETED, cluster.logs(handle, 0)[0][-3000:]
    assert kept < STEPS
    assert slurm.run("scontrol", "--oneliner", "show", "job", handle.id).split("Restarts=")[1].split()[0] == "1"
    assert outcome(run) == undisturbed
