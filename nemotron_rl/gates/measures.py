"""Figures taken from a run's metrics and evaluation. Pure; None (never 0) when what they need was not recorded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import median

from nemotron_rl.evaluate.scores import Evaluation

Metrics = Mapping[str, float]
"""One step's metrics by name, as in a line of metrics.jsonl."""


WARM_STEPS = 1
"""Steps that memory is not judged by."""


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


def memory_growth(metrics: Sequence[Metrics]) -> tuple[str, float] | None:
    """The phase after which memory in use grows most from step to step, and by how many percent of all memory.

    The slope is the median over all pairs of steps (Theil 1950, Sen 1968), which single outliers do not move; the first
    step is left out, in which caches fill.
    """
    warm = metrics[WARM_STEPS:]
    names = {name for step in warm for name in step if name.startswith("memory/after_")}
    used = {name: series(warm, name) for name in names}
    all_gib = series(warm, "memory/total_gib")
    if len(warm) < 2 or not used or all_gib is None or None in used.values():
        return None
    slopes = {name: _slope(values) for name, values in used.items() if values is not None}
    worst = max(sorted(slopes), key=slopes.__getitem__)
    phase = worst.removeprefix("memory/after_").removesuffix("_gib")
    return phase, 100 * slopes[worst] / max(all_gib)


def _slope(values: Sequence[float]) -> float:
    """The median of (b - a) / (steps between) over all pairs."""
    pairs = combinations(enumerate(values), 2)
    return median((later - earlier) / (j - i) for (i, earlier), (j, later) in pairs)


def not_finite(metrics: Sequence[Metrics]) -> list[str]:
    """`step 3: train/loss is nan`, for every value that is NaN or infinite."""
    return [
        f"step {step.get('step', position):g}: {name} is {value}"
        for position, step in enumerate(metrics)
        for name, value in step.items()
        if not math.isfinite(value)
    ]
