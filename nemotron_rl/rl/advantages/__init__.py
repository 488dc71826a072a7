"""Advantage estimators by name. A new one is a file here, a line in `_MODULES` and a choice in `AlgorithmSettings`.

S samples of this data-parallel rank; all samples of a prompt are on one rank
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from nemotron_rl.config.rl import AlgorithmSettings

Centre = Callable[[Tensor, Tensor, AlgorithmSettings], Tensor]
"""(reward_S, group_S, settings) -> values [S]; `group_S` says which prompt each sample belongs to."""


@dataclass(frozen=True)
class Estimator:
    """How rewards become advantages."""

    centre: Centre
    """The advantages, or with `over_batch` what is normalised to get them."""
    over_batch: bool = False
    """Whether `normalized` with the statistics of all data-parallel ranks' values gives the advantages."""


@dataclass(frozen=True)
class BatchStatistics:
    """Of the values of all data-parallel ranks."""

    mean: float
    std: float
    """That of a sample (divisor n - 1); 0 when all values are equal."""

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """The statistics of these values; mean 0 and deviation 0 of none at all."""
        if not values:
            return cls(0.0, 0.0)
        values_N = torch.tensor(values, dtype=torch.float64)
        equal = bool((values_N == values_N[0]).all())
        return cls(float(values_N.mean()), 0.0 if equal else float(values_N.std()))


def normalized(value_S: Tensor, statistics: BatchStatistics, eps: float = 1e-6) -> Tensor:
    """(value - mean) / (deviation + eps), [S]; exactly zero when all values of the batch are equal."""
    if statistics.std == 0:
        return torch.zeros_like(value_S)
    return (value_S - statistics.mean) / (statistics.std + eps)


def estimator(name: str) -> Estimator:
    """The estimator registered under `name`: `ESTIMATOR` of its module."""
    found: Estimator = importlib.import_module(_MODULES[name]).ESTIMATOR
    return found


def estimator_names() -> list[str]:
    """All registered names."""
    return sorted(_MODULES)


_MODULES = {
    "dr_grpo": "nemotron_rl.rl.advantages.dr_grpo",
    "group_normalized": "nemotron_rl.rl.advantages.group_normalized",
    "reinforce_pp": "nemotron_rl.rl.advantages.reinforce_pp",
    "reinforce_pp_baseline": "nemotron_rl.rl.advantages.reinforce_pp_baseline",
    "rloo": "nemotron_rl.rl.advantages.rloo",
}
