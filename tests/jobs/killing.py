"""A training run that is killed at a chosen point and started again, and what is compared afterwards."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from nemotron_rl.checkpoint.slicing import slice_checkpoint
from nemotron_rl.checkpoint.synth import synthesize
from nemotron_rl.config.load import load_settings
from nemotron_rl.data.arithmetic import generate_arithmetic
from nemotron_rl.data.prompts import write_prompts
from nemotron_rl.jobs.requests import TrainRequest
from nemotron_rl.store.steps import StepStore
from tests.jobs.ranks import Ranks, until

OVERRIDES: dict[str, object] = {
    "parallel.world_size": 2,
    "model.threads": 1,
    "train.prompts_per_step": 4,
    "rollout.samples_per_prompt": 4,
    "train.checkpoint.every": 1,
    "train.dump_details": True,
    # Untrained answers are all equally wrong. That some are shorter gives them different rewards.
    "rollout.sampling.max_new_tokens": 24,
    "algorithm.overlong_tokens": 24,
    "algorithm.kl_coef": 0.01,
    "train.optimizer.weight_decay": 0.1,
    "train.optimizer.lr": 1e-2,
    "train.optimizer.decay": "cosine",
    "train.optimizer.warmup_steps": 2,
    "train.optimizer.distributed": True,
}


@dataclass(frozen=True)
class Point:
    """When to kill whom."""

    phase: str
    """`step`: `delay_s` after step `step` was written to the metrics; `save`: while a checkpoint after it is written;
    `export`: while the result is written."""
    step: int
    delay_s: float
    victims: tuple[int, ...]
    """Ranks that are killed."""


@dataclass(frozen=True)
class Setup:
    """What all runs have in common."""

    work: Path
    start: Path
    prompts: Path
    steps: int
    changes: Mapping[str, object] = field(default_factory=dict)
    """Settings other than `OVERRIDES`."""
    ranks: int = 2
    """Of the job."""

    def request(self, run_id: str, **overrides: object) -> Path:
        """The request file of a new run."""
        run = self.work / run_id
        (run / "train" / "out").mkdir(parents=True, exist_ok=True)
        named = {"run_id": run_id, "output_dir": str(self.work), "train.steps": self.steps}
        settings = load_settings("tiny", overrides={**OVERRIDES, **self.changes, **named, **overrides}, environ={})
        request = TrainRequest(
            settings=settings,
            out=run / "train" / "out",
            metrics=run / "train" / "metrics.jsonl",
            run_dir=run,
            start=self.start,
            prompts=self.prompts,
            inputs=("a" * 64, "b" * 64),
        )
        return request.write(run / "train" / "request.json")

    def run_alone(self, ranks: Ranks) -> Path:
        """A run that nobody disturbs; its folder."""
        ranks.run(self.request("alone"), self.ranks, self.work / "alone.log")
        return self.work / "alone"


def prepare(work: Path, ranks: Ranks, steps: int, changes: Mapping[str, object] | None = None) -> Setup:
    """A starting checkpoint and prompts."""
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "start").exists():
        synthesize("tiny", work / "tiny")
        slice_checkpoint(work / "tiny", work / "start", [0, 1, 3, 4])
    settings = load_settings("tiny", environ={})
    train, _ = generate_arithmetic(settings.data.seed, settings.data.eval_prompts, settings.data.arithmetic)
    return Setup(work, work / "start", write_prompts(work / "prompts.jsonl", train), steps, changes or {})


def killed_and_resumed(setup: Setup, ranks: Ranks, run_id: str, point: Point) -> tuple[Path, int]:
    """A run that was killed at the point and then ran to its end; its folder, and the step that it resumed after."""
    request, run, log = setup.request(run_id), setup.work / run_id, setup.work / f"{run_id}.log"
    pids = ranks.start(request, setup.ranks, log)
    reached = until(_moment(run, point), pids)
    assert reached, f"the run ended before {point}: {log.read_text()[-2000:]}"
    time.sleep(point.delay_s if point.phase != "save" else 0)
    ranks.kill(pids, [pids[victim] for victim in point.victims])
    resumed = max(StepStore(run / "checkpoints").complete(), default=0)
    ranks.run(request, setup.ranks, log)
    return run, resumed


def outcome(run: Path) -> dict[str, Any]:
    """Hashes and numbers that must not depend on what happened to the run."""
    store = StepStore(run / "checkpoints")
    last = store.manifest(store.complete()[-1])
    tensors = {e.path: e.sha256 for e in last.files if e.path.startswith(("state/__", "random/"))}
    weights = {
        p.name: sha256(p.read_bytes()).hexdigest() for p in sorted((run / "train" / "out").glob("*.safetensors"))
    }
    assert tensors and weights
    return {"step": last.facts["step"], "tensors": tensors, "weights": weights, "metrics": metrics(run)}


def metrics(run: Path) -> list[dict[str, float]]:
    """Every line, less what no two runs share."""
    lines = (run / "train" / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not k.startswith(("time/", "memory/"))} for line in lines]


def _moment(run: Path, point: Point) -> Callable[[], bool]:
    log, out, checkpoints = run / "train" / "metrics.jsonl", run / "train" / "out", run / "checkpoints"

    def past_step() -> bool:
        return log.exists() and log.read_bytes().count(b"\n") >= point.step

    def saving() -> bool:
        half = (path for path in checkpoints.glob("step_*") if not (path / "manifest.json").exists())
        return past_step() and any(any(path.rglob("*.distcp")) for path in half)

    def exporting() -> bool:
        return any(out.iterdir())

    return {"step": past_step, "save": saving, "export": exporting}[point.phase]
