"""Jobs that cannot go on where they were, killed and started again in the same place, as Slurm's requeueing does."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

from nemotron_rl.config.load import load_settings
from nemotron_rl.jobs.evaluate import evaluate
from nemotron_rl.jobs.requests import EvaluateRequest, WarmupRequest
from tests.jobs.killing import Setup, prepare
from tests.jobs.ranks import Ranks, until

pytestmark = pytest.mark.slow
STEPS = 4


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory, ranks: Ranks) -> Setup:
    return prepare(tmp_path_factory.mktemp("again"), ranks, STEPS)


def warmup_request(setup: Setup, name: str) -> Path:
    stage = setup.work / name
    (stage / "out").mkdir(parents=True)
    overrides = {"parallel.world_size": 2, "model.threads": 1, "warmup.steps": STEPS, "warmup.batch_size": 8}
    request = WarmupRequest(
        settings=load_settings("tiny", overrides=overrides, environ={}),
        out=stage / "out",
        metrics=stage / "metrics.jsonl",
        start=setup.start,
        prompts=setup.prompts,
    )
    return request.write(stage / "request.json")


def results(stage: Path) -> dict[str, str]:
    return {p.name: sha256(p.read_bytes()).hexdigest() for p in sorted((stage / "out").iterdir())}


def steps(stage: Path) -> list[dict[str, float]]:
    lines = (stage / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not k.startswith("time/")} for line in lines]


@pytest.fixture(scope="module")
def alone(setup: Setup, ranks: Ranks) -> Path:
    """A warm-up that nobody disturbed."""
    request = warmup_request(setup, "alone")
    ranks.run(request, 2, setup.work / "alone.log", "warmup")
    return request.parent


@pytest.mark.parametrize("moment", ["training", "exporting"])
def test_a_killed_warmup_starts_over(setup: Setup, ranks: Ranks, alone: Path, moment: str) -> None:
    request, log = warmup_request(setup, moment), setup.work / f"{moment}.log"
    stage = request.parent

    def reached() -> bool:
        written = stage / "metrics.jsonl"
        lines = written.read_bytes().count(b"\n") if written.exists() else 0
        return lines >= 2 if moment == "training" else any(stage.glob(".out.partial-*/*"))

    pids = ranks.start(request, 2, log, "warmup")
    assert until(reached, pids), log.read_text()[-2000:]
    ranks.kill(pids, pids)
    assert len(steps(stage)) >= 2
    # What a start that ended in the middle of writing its results may leave.
    (stage / "out" / "model.safetensors").write_bytes(b"half")
    (stage / "out" / "folder").mkdir()
    ranks.run(request, 2, log, "warmup")
    assert results(stage) == results(alone)
    assert steps(stage) == steps(alone)
    assert [step["step"] for step in steps(stage)] == list(range(STEPS))


def test_a_finished_warmup_that_is_started_again_gives_the_same(setup: Setup, ranks: Ranks, alone: Path) -> None:
    before, then = results(alone), steps(alone)
    ranks.run(alone / "request.json", 2, setup.work / "alone.log", "warmup")
    assert (results(alone), steps(alone)) == (before, then)


def test_an_evaluation_that_is_started_again_starts_over(setup: Setup) -> None:
    stage = setup.work / "evaluation"
    (stage / "out").mkdir(parents=True)
    prompts = stage / "prompts.jsonl"
    prompts.write_text("".join(setup.prompts.read_text().splitlines(keepends=True)[:3]))
    overrides = {"model.threads": 1, "evaluate.sampling.max_new_tokens": 4}
    request = EvaluateRequest(
        settings=load_settings("tiny", overrides=overrides, environ={}),
        out=stage / "out",
        metrics=stage / "metrics.jsonl",
        models={"base": setup.start},
        prompts=prompts,
    )
    (stage / "out" / "half").write_text("of an earlier start")
    request.metrics.write_text('{"step": 0, "evaluate/accuracy": 0.5}\n{"step": 1, "eval')
    evaluate(request)
    first, then = results(stage), steps(stage)
    assert first.keys() == {"evaluation.json", "samples.jsonl"} and len(then) == 1
    evaluate(request)
    assert (results(stage), steps(stage)) == (first, then)
