"""Figures taken from a run's metrics and evaluation. Pure; None (never 0) when what they need was not recorded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from nemotron_rl.evaluate.scores import Evaluation

Metrics = Mapping[str, float]
"""One step's metrics by name, as in a line of metrics.jsonl."""


def series(metrics: Sequence[Metrics], name: str) -> list[float] | None:
    """The metric of every step; None when a step lacks it or there is no step."""
    if not metrics or any(name not in step for step in metrics):
        return None
    return [step[name] for step in metrics]


def largest(metrics: Sequence[Metrics], name: str) -> float | None:
    """The metric's largest value; NaN when one is NaN, which a plain max would lose."""
    values = series(metrics, name)
    if values is None:
        return None
    return math.nan if any(map(math.isnan, values)) else max(values)


def total(metrics: Sequence[Metrics], name: str) -> float | None:
    """The metric's sum over all steps."""
    values = series(metrics, name)
    return None if values is None else math.fsum(values)


def reward_before_after(metrics: Sequence[Metrics]) -> tuple[float, float] | None:
    """Mean reward of the first step, and of the last quarter of the steps (rounded up)."""
    rewards = series(metrics, "reward/mean")
    if rewards is None:
        return None
    last = rewards[-math.ceil(len(rewards) / 4) :]
    return rewards[0], math.fsum(last) / len(last)


def reward_gain(metrics: Sequence[Metrics]) -> float | None:
    """Reward after / reward before; infinite when it rose from 0, and 1 when it stayed there."""
    rewards = reward_before_after(metrics)
    if rewards is None:
        return None
    before, after = rewards
    if before == 0:
        return math.inf if after > 0 else 1.0
    return after / before


def accuracy_gain(evaluation: Evaluation | None) -> float | None:
    """Accuracy of the trained checkpoint minus that of the base."""
    models = evaluation.models if evaluation else {}
    if not {"base", "trained"} <= models.keys():
        return None
    return models["trained"].accuracy - models["base"].accuracy


def not_finite(metrics: Sequence[Metrics]) -> list[str]:
    """`step 3: train/loss is nan`, for every value that is NaN or infinite."""
    return [
        f"step {step.get('step', position):g}: {name} is {value}"
        for position, step in enumerate(metrics)
        for name, value in step.items()
        if not math.isfinite(value)
    ]
