"""Real two-rank runs that draw prompts again and make four updates per rollout; their start knows some answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nemotron_rl.config.load import load_settings
from nemotron_rl.jobs.replayed import Replays
from nemotron_rl.jobs.requests import ReplayRequest, TrainRequest, WarmupRequest
from nemotron_rl.store.steps import StepStore
from tests.jobs.killing import Point, Setup, killed_and_resumed, metrics, outcome, prepare
from tests.jobs.ranks import Ranks

pytestmark = pytest.mark.slow
STEPS = 4
CHANGES: dict[str, object] = {
    "train.prompts_per_step": 8,
    "train.updates_per_rollout": 2,
    "train.epochs_per_rollout": 2,
    "train.checkpoint.background": False,
    "train.optimizer.lr": 1e-3,
    "train.optimizer.warmup_steps": 3,
    "algorithm.drop_equal_groups": True,
    "algorithm.redraw_rounds": 2,
    "algorithm.overlong_tokens": 0,
    "rollout.sampling.max_new_tokens": 5,
}


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory, ranks: Ranks) -> Setup:
    """A start of which about every tenth answer is right."""
    cold = prepare(tmp_path_factory.mktemp("several"), ranks, STEPS, CHANGES)
    stage = cold.work / "warmup"
    (stage / "out").mkdir(parents=True)
    settings = load_settings("tiny", overrides={"parallel.world_size": 2, "model.threads": 1}, environ={})
    request = WarmupRequest(
        settings=settings, out=stage / "out", metrics=stage / "metrics.jsonl", start=cold.start, prompts=cold.prompts
    )
    ranks.run(request.write(stage / "request.json"), 2, stage / "log", "warmup")
    return replace(cold, start=stage / "out")


@pytest.fixture(scope="module")
def alone(setup: Setup, ranks: Ranks) -> Path:
    return setup.run_alone(ranks)


def test_prompts_are_drawn_again_and_the_clip_binds(alone: Path) -> None:
    steps = metrics(alone)
    assert len(steps) == STEPS
    for step in steps:
        assert step["train/updates"] == 4
        assert step["rollout/prompts_drawn"] == 8 * step["rollout/rounds"]
        assert step["reward/kept"] == min(8, step["rollout/prompts_informative"]) / 8
    assert max(step["rollout/rounds"] for step in steps) > 1
    assert max(step["train/clip_fraction"] for step in steps) > 0
    assert max(abs(step["train/ratio"] - 1) for step in steps) > 1e-4


def test_the_schedule_counts_optimizer_steps(alone: Path) -> None:
    # Warm-up from 0 over three of the sixteen updates; a step reports the rate of its last one.
    rates = [step["train/lr"] for step in metrics(alone)]
    assert rates[0] == pytest.approx(1e-3)
    assert rates == sorted(rates, reverse=True) and 0 < rates[-1] < 1e-4


def test_a_killed_run_ends_as_if_nothing_had_happened(setup: Setup, ranks: Ranks, alone: Path) -> None:
    run, resumed = killed_and_resumed(setup, ranks, "killed", Point("step", 3, 0.0, (0, 1)))
    assert 0 < resumed < STEPS
    assert outcome(run) == outcome(alone)
    records = [StepStore(folder / "checkpoints").manifest(STEPS).facts for folder in (run, alone)]
    assert records[0]["sampler_position"] == records[1]["sampler_position"]


@pytest.mark.parametrize(("step", "steps"), [(STEPS - 1, 1), (1, 2)])
def test_every_update_of_a_kept_step_replays_bit_for_bit(ranks: Ranks, alone: Path, step: int, steps: int) -> None:
    folder = alone / "replay" / str(step)
    (folder / "out").mkdir(parents=True)
    train = TrainRequest.read(alone / "train" / "request.json")
    request = ReplayRequest(
        settings=train.settings, out=folder / "out", metrics=folder / "metrics.jsonl", train=train, step=step
    )
    ranks.run(request.write(folder / "request.json"), 2, folder / "log", "replay")
    found = Replays.read(folder / "out")
    assert len(found.steps) == steps
    assert all(one.equal and one.tensors == 95 for one in found.steps), found.text()


def test_one_rank_draws_and_updates_like_two(setup: Setup, ranks: Ranks, alone: Path) -> None:
    """From the start: mini-batches hold the same prompts whatever the number of replicas."""
    request = setup.request("single", **{"parallel.world_size": 1})
    ranks.run(request, 1, setup.work / "single.log")
    here, there = metrics(setup.work / "single")[0], metrics(alone)[0]
    for name in ("rollout/prompts_drawn", "rollout/prompts_informative", "rollout/rounds", "reward/mean", "train/lr"):
        assert here[name] == there[name]
    for name in ("train/loss", "train/grad_norm", "train/mtp_loss", "train/ratio", "train/kl"):
        assert here[name] == pytest.approx(there[name], rel=1e-3, abs=1e-5)
