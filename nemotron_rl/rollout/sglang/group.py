"""The ranks that share one engine. The first of them holds it and acts for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from nemotron_rl.errors import InputError, NemotronRLError


@dataclass(frozen=True)
class EngineGroup:
    """Consecutive ranks of one host."""

    ranks: tuple[int, ...]
    rank: int
    """This rank, in the world."""
    first_gpu: int
    """The host's number of the first rank's GPU."""
    process_group: Any
    """Over gloo: only small objects pass through it. None for a process alone."""

    @classmethod
    def alone(cls) -> EngineGroup:
        """A process that drives an engine by itself, whatever GPUs that has."""
        return cls((0,), 0, 0, None)

    @classmethod
    def of_this_rank(cls, size: int) -> EngineGroup:
        """The group of this rank; a collective call of the world.

        Raises:
            InputError: when the world size is no multiple of `size`.
        """
        import os

        world, rank, local = dist.get_world_size(), dist.get_rank(), int(os.environ["LOCAL_RANK"])
        if world % size:
            raise InputError(f"rollout.sglang.gpus_per_engine is {size}, which does not divide {world} ranks")
        groups = [tuple(range(first, first + size)) for first in range(0, world, size)]
        handles = [dist.new_group(list(ranks), backend="gloo") for ranks in groups]
        mine = rank // size
        return cls(groups[mine], rank, local - (rank - groups[mine][0]), handles[mine])

    @property
    def leads(self) -> bool:
        """Whether this rank holds the engine."""
        return self.rank == self.ranks[0]

    def gather(self, item: Any) -> list[Any]:
        """Every rank's item, in order of rank, on the leader; an empty list elsewhere."""
        if self.process_group is None:
            return [item]
        items: list[Any] | None = [None] * len(self.ranks) if self.leads else None
        dist.gather_object(item, items, dst=self.ranks[0], group=self.process_group)
        return items or []

    def lead[T](self, act: Callable[[], T]) -> T | None:
        """What `act` returns, called by the leader while the others wait; None there.

        Raises:
            NemotronRLError: on the other ranks, when it failed on the leader, which raises what it met.
        """
        result, failure = None, None
        if self.leads:
            try:
                result = act()
            except Exception as error:
                failure = error
        said = [repr(failure) if failure else ""]
        if self.process_group is not None:
            dist.broadcast_object_list(said, src=self.ranks[0], group=self.process_group)
        if failure:
            raise failure
        if said[0]:
            raise NemotronRLError(f"rank {self.ranks[0]}, which holds the engine, failed: {said[0]}")
        return result

    def scatter[T](self, items: Sequence[T] | None) -> T:
        """This rank's part of what the leader gives, one item a rank."""
        if self.process_group is None and items is not None:
            return items[0]
        received: list[Any] = [None]
        given = list(items) if items is not None else None
        dist.scatter_object_list(received, given, src=self.ranks[0], group=self.process_group)
        item: T = received[0]
        return item
