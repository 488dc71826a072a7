"""A finished run to draw."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from nemotron_rl.config.load import load_settings
from nemotron_rl.evaluate.scores import Evaluation, score_samples
from nemotron_rl.gates.judge import judge
from nemotron_rl.report.run_report import ArtifactLine, RunReport, StageTime


def training_metrics(steps: int = 12) -> list[dict[str, float]]:
    return [
        {
            "step": step,
            "reward/mean": 0.12 + 0.04 * step,
            "reward/std": 0.3,
            "response/length_mean": 2.4,
            "logprob/abs_diff_max": (3 + step % 4) * 1e-6,
            "logprob/abs_diff_p99": (1 + step % 3) * 1e-6,
            "train/mtp_loss": 5.2 - 0.1 * step,
            "train/grad_norm": 0.31 + 0.01 * step,
            "sync/tensors": 95,
            "sync/mismatched": 0,
            "time/step_s": 3.2,
            "memory/peak_rss_gib": 1.87,
        }
        for step in range(steps)
    ]


@pytest.fixture
def report() -> RunReport:
    settings = load_settings(
        "tiny",
        overrides=["run_id=tiny-20261130-083000", "gates.reward_gain_min=3", "gates.accuracy_gain_min=0.1"],
        environ={},
    )
    metrics = training_metrics()
    base, trained = score_samples([1] * 3 + [0] * 17, [3] * 20), score_samples([1] * 12 + [0] * 8, [2] * 20)
    evaluation = Evaluation(models={"base": base, "trained": trained})
    return RunReport(
        version="0.1.0",
        settings=settings,
        started=datetime(2026, 11, 30, 8, 30, tzinfo=UTC),
        seconds=128.4,
        verdict=judge(settings.gates, metrics, evaluation),
        metrics=tuple(metrics),
        evaluation=evaluation,
        stages=(
            StageTime(name="download", seconds=0.2, cached=True),
            StageTime(name="slice", seconds=0.1, cached=True),
            StageTime(name="convert", seconds=11.4),
            StageTime(name="train", seconds=71.3),
            StageTime(name="evaluate", seconds=9.0),
        ),
        artifacts=(
            ArtifactLine(name="trained checkpoint", uri="s3://nightly/models/train/8f1c0a", nbytes=5_312_044),
            ArtifactLine(name="metrics", uri="runs/tiny-20261130-083000/metrics.jsonl", nbytes=4212),
            ArtifactLine(name="job log", uri="runs/tiny-20261130-083000/train/job.log"),
        ),
    )
