"""Which rank of a job does what when trainers and engines have ranks of their own. Pure; imports no torch.

Ranks 0 to trainers - 1 train. The ranks after them hold engines, the same number of consecutive ranks each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from nemotron_rl.config.settings import Settings


@dataclass(frozen=True)
class Places:
    """The ranks of one job."""

    trainers: int
    engines: int
    ranks_per_engine: int = 1

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Those of a run's training job, which must have passed the rules of settings."""
        per_engine = settings.rollout.ranks_per_engine
        return cls(settings.parallel.world_size, settings.rollout.ranks // per_engine, per_engine)

    @property
    def world(self) -> int:
        """Ranks in all."""
        return self.trainers + self.engines * self.ranks_per_engine

    @property
    def rollout_ranks(self) -> range:
        """Those that hold engines."""
        return range(self.trainers, self.world)

    def trains(self, rank: int) -> bool:
        """Whether the rank is a trainer's."""
        return rank < self.trainers

    def engine_of(self, rank: int) -> int:
        """The engine that a rollout rank holds a part of."""
        return (rank - self.trainers) // self.ranks_per_engine

    def ranks_of(self, engine: int) -> range:
        """The ranks of an engine; the first speaks for it."""
        first = self.trainers + engine * self.ranks_per_engine
        return range(first, first + self.ranks_per_engine)

    def leader(self, engine: int) -> int:
        """The rank to which an engine's calls go."""
        return self.ranks_of(engine)[0]

    def engines_of(self, replica: int, replicas: int) -> list[int]:
        """The engines that generate for one of the trainer's data-parallel replicas; at least one.

        Fewer engines than replicas are shared, replica i using engine i mod engines; more are dealt out in turn.
        """
        return [engine for engine in range(self.engines) if engine % replicas == replica % self.engines]


def shares[T](items: Sequence[T], parts: int) -> list[Sequence[T]]:
    """Consecutive parts whose lengths differ by one at most, the longer ones first."""
    size, longer = divmod(len(items), parts)
    starts = [part * size + min(part, longer) for part in range(parts + 1)]
    return [items[start:end] for start, end in pairwise(starts)]
