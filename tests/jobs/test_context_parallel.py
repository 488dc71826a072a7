"""A whole training job whose two ranks share each sequence: it trains, resumes and exports as one rank does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nemotron_rl.checkpoint.verify import verify_checkpoints
from nemotron_rl.rollout.reference.load import folder_weights
from tests.jobs.killing import Point, Setup, killed_and_resumed, metrics, outcome, prepare
from tests.jobs.ranks import Ranks

pytestmark = pytest.mark.slow
STEPS = 3
CHANGES: dict[str, object] = {
    "parallel.cp": 2,
    "algorithm.entropy_coef": 0.01,
    "train.dump_details": False,
    "train.checkpoint.background": False,
    "train.optimizer.lr": 1e-3,
    "train.optimizer.warmup_steps": 0,
    # With a smaller one a weight of tiny gradient moves by a full step, in the direction that rounding gives it.
    "train.optimizer.eps": 1e-5,
}


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory, ranks: Ranks) -> Setup:
    return prepare(tmp_path_factory.mktemp("cp"), ranks, STEPS, CHANGES)


@pytest.fixture(scope="module")
def alone(setup: Setup, ranks: Ranks) -> Path:
    return setup.run_alone(ranks)


@pytest.fixture(scope="module")
def one_rank(setup: Setup, ranks: Ranks) -> Path:
    """The same run on one rank."""
    ranks.run(setup.request("one", **{"parallel.world_size": 1, "parallel.cp": 1}), 1, setup.work / "one.log")
    return setup.work / "one"


def test_a_killed_run_ends_as_if_nothing_had_happened(setup: Setup, ranks: Ranks, alone: Path) -> None:
    run, resumed = killed_and_resumed(setup, ranks, "killed", Point("step", 2, 0.0, (0, 1)))
    assert 0 < resumed < STEPS
    assert outcome(run) == outcome(alone)


def test_the_first_step_is_that_of_one_rank(alone: Path, one_rank: Path) -> None:
    here, there = metrics(alone)[0], metrics(one_rank)[0]
    assert here.keys() == there.keys()
    rounded = {name for name in there if name.startswith(("train/", "logprob/"))} - {"train/padding"}
    for name in there.keys() - rounded - {"train/padding"}:
        assert here[name] == there[name], name
    for name in rounded:
        assert here[name] == pytest.approx(there[name], rel=1e-4, abs=1e-5), name
    assert here["train/entropy"] > 0 and here["train/grad_norm"] > 0


def test_the_export_is_complete_and_that_of_one_rank(setup: Setup, alone: Path, one_rank: Path) -> None:
    compared = verify_checkpoints(setup.start, alone / "train" / "out")
    assert compared.missing == compared.extra == () and compared.differing
    here, there = (dict(folder_weights(run / "train" / "out")) for run in (alone, one_rank))
    assert here.keys() == there.keys()
    # Three steps move a weight by up to 3e-3; rounding may be a tenth of that, and a last bit of the exported bf16.
    for name, weight in there.items():
        torch.testing.assert_close(here[name], weight, atol=3e-4, rtol=2**-7, msg=lambda m, n=name: f"{n}: {m}")
