"""Advantages with loops over samples, as the papers write them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from tests.oracles import grpo

EPS = 1e-6


def _others(rewards: Sequence[float], groups: Sequence[int], me: int) -> list[float]:
    return [r for i, (r, g) in enumerate(zip(rewards, groups, strict=True)) if g == groups[me] and i != me]


def rloo(rewards: Sequence[float], groups: Sequence[int]) -> list[float]:
    return [r - statistics.mean(_others(rewards, groups, i)) for i, r in enumerate(rewards)]


def dr_grpo(rewards: Sequence[float], groups: Sequence[int]) -> list[float]:
    return [r - statistics.mean([*_others(rewards, groups, i), r]) for i, r in enumerate(rewards)]


def over_batch(values: Sequence[float]) -> list[float]:
    if max(values) - min(values) < 1e-12:
        return [0.0] * len(values)
    mean, deviation = statistics.mean(values), statistics.stdev(values)
    return [(value - mean) / (deviation + EPS) for value in values]


ADVANTAGES: dict[str, Callable[[Sequence[float], Sequence[int]], list[float]]] = {
    "dr_grpo": dr_grpo,
    "group_normalized": grpo.advantages,
    "reinforce_pp": lambda rewards, _: over_batch(rewards),
    "reinforce_pp_baseline": lambda rewards, groups: over_batch(dr_grpo(rewards, groups)),
    "rloo": rloo,
}
