"""Whole training jobs whose engines have ranks of their own; each computes what one with shared ranks does."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from nemotron_rl.cluster.failure import read_failure
from nemotron_rl.store.steps import StepStore
from tests.jobs.killing import Setup, outcome, prepare
from tests.jobs.ranks import Ranks, until

pytestmark = pytest.mark.slow
STEPS = 3
CHANGES: dict[str, object] = {
    "rollout.check_prefill": True,
    "train.checkpoint.background": False,
    "algorithm.drop_equal_groups": True,
    "algorithm.redraw_rounds": 1,
    "train.updates_per_rollout": 2,
}


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory, ranks: Ranks) -> Setup:
    """Two replicas that share a rank with an engine each."""
    return prepare(tmp_path_factory.mktemp("separate"), ranks, STEPS, CHANGES)


@pytest.fixture(scope="module")
def shared(setup: Setup, ranks: Ranks) -> Path:
    return setup.run_alone(ranks)


def separated(setup: Setup, rollouts: int, **changes: object) -> Setup:
    """The same with engines on ranks of their own."""
    placed: dict[str, object] = {"rollout.placement": "separate", "rollout.ranks": rollouts}
    return replace(setup, changes={**setup.changes, **placed, **changes}, ranks=2 + rollouts)


def run(setup: Setup, ranks: Ranks, run_id: str) -> Path:
    """An undisturbed run; its folder."""
    ranks.run(setup.request(run_id), setup.ranks, setup.work / f"{run_id}.log")
    return setup.work / run_id


@pytest.mark.parametrize("engines", [1, 2])
def test_two_replicas_train_as_with_engines_beside_them(setup: Setup, ranks: Ranks, shared: Path, engines: int) -> None:
    """One engine serves both in turn; two serve one each."""
    assert outcome(run(separated(setup, engines), ranks, f"of-{engines}")) == outcome(shared)


def test_a_split_replica_trains_as_with_an_engine_beside_it(setup: Setup, ranks: Ranks) -> None:
    split: dict[str, object] = {"parallel.tp": 2, "train.steps": 2}
    beside = run(replace(setup, changes={**setup.changes, **split}), ranks, "tp-shared")
    assert outcome(run(separated(setup, 1, **split), ranks, "tp-separate")) == outcome(beside)


@pytest.mark.parametrize("victim", [0, 2], ids=["trainer", "rollout"])
def test_when_a_rank_is_killed_the_others_end_and_the_run_can_go_on(
    setup: Setup, ranks: Ranks, shared: Path, victim: int
) -> None:
    """Here nobody ends the others, as torchrun would. The second start ends as if nothing had happened."""
    job, run_id = separated(setup, 1), f"killed-{victim}"
    request, log = job.request(run_id), setup.work / f"{run_id}.log"
    pids, saved = ranks.start(request, job.ranks, log), StepStore(setup.work / run_id / "checkpoints")
    assert until(lambda: bool(saved.complete()), pids)
    started = time.monotonic()
    codes = ranks.kill(pids, [pids[victim]], grace_s=30)
    assert time.monotonic() - started < 20
    assert codes == [-9 if rank == victim else 1 for rank in range(3)]
    assert read_failure(request.parent) is None  # nobody claims that it was his fault
    assert re.search("Connection (closed|reset) by peer", log.read_text())
    assert 0 < max(saved.complete()) < STEPS
    ranks.run(request, job.ranks, log)
    assert outcome(setup.work / run_id) == outcome(shared)
