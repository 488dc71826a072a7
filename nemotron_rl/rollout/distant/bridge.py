"""Joins the trainers of a job with its rollout ranks, which otherwise live in process groups of their own.

Each side's default group spans that side only: Megatron takes its world from it. Between the sides are two groups that
are nobody's default: one over gloo for calls, answers and headers, and one for weights, from the first trainer to all
rollout ranks.
"""

from __future__ import annotations

import contextlib
import enum
import os
import pickle
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from nemotron_rl.errors import InputError
from nemotron_rl.rollout.distant.calls import Leave
from nemotron_rl.rollout.distant.places import Places

Device = Literal["cpu", "cuda"]


class Channel(enum.IntEnum):
    """Keeps messages of one purpose apart from others between the same two ranks."""

    CALLS = 1
    ANSWERS = 3
    WEIGHTS = 5


class Bridge:
    """This rank's end. Whatever ends a trainer's block, the engines are told that it left."""

    def __init__(self, places: Places, rank: int, store: Store, device: Device, timeout: timedelta) -> None:
        """Use `open_bridge`."""
        self.places, self.rank = places, rank
        self.device = torch.device(device, torch.cuda.current_device()) if device == "cuda" else torch.device(device)
        self._store = store
        # Any: torch's type stubs lack what backends inherit.
        self._objects: Any = dist.ProcessGroupGloo(PrefixStore("bridge", store), rank, places.world, timeout)
        members = [0, *places.rollout_ranks]
        self._weights = _weight_group(store, members, rank, device, timeout) if rank in members else None

    @property
    def trains(self) -> bool:
        """Whether this rank is a trainer's."""
        return self.places.trains(self.rank)

    @property
    def side(self) -> tuple[Store, int, int]:
        """Meeting place, rank and number of ranks of the default group that this rank belongs into."""
        if self.trains:
            return PrefixStore("trainers", self._store), self.rank, self.places.trainers
        rollout = self.places.rollout_ranks
        return PrefixStore("rollout", self._store), self.rank - rollout.start, len(rollout)

    def send(self, item: object, to: int, channel: Channel) -> None:
        """Send any object that can be pickled to a rank; returns when it is on its way."""
        data = torch.frombuffer(bytearray(pickle.dumps(item)), dtype=torch.uint8)
        self._objects.send([torch.tensor([len(data)])], to, channel).wait()
        self._objects.send([data], to, channel + 1).wait()

    def receive(self, source: int, channel: Channel) -> Any:
        """The next object from a rank, however long it takes.

        Raises:
            RuntimeError: when that rank is gone.
        """
        size = torch.zeros(1, dtype=torch.long)
        self._objects.recv([size], source, channel).wait()
        data = torch.empty(int(size), dtype=torch.uint8)
        self._objects.recv([data], source, channel + 1).wait()
        return pickle.loads(data.numpy().tobytes())

    def broadcast(self, tensor: Tensor) -> dist.Work:
        """Start to bring the first trainer's tensor to every rollout rank; a collective call of these."""
        if self._weights is None:
            raise RuntimeError(f"rank {self.rank} takes no part in sending weights")
        options = dist.BroadcastOptions()
        options.rootRank, options.rootTensor = 0, 0
        return self._weights.broadcast([tensor], options)

    def close(self) -> None:
        """Leave; the last trainer that does ends the engines."""
        if self.trains:
            for engine in range(self.places.engines):
                with contextlib.suppress(RuntimeError):  # an engine that is gone need not be told
                    self.send(Leave(), self.places.leader(engine), Channel.CALLS)


@contextlib.contextmanager
def open_bridge(places: Places, device: Device, timeout: timedelta) -> Iterator[Bridge]:
    """Meet the other ranks that torchrun started.

    A rollout rank waits for its next call while the trainers make an update, however long that takes. So the timeout
    must be that of the whole job; the end of a rank is noticed at once, by its closed connections.

    Raises:
        InputError: when torchrun started another number of ranks than the settings say.
    """
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    store, rank, world = next(rendezvous("env://"))
    if world != places.world:
        raise InputError(
            f"parallel.world_size + rollout.ranks is {places.trainers} + {len(places.rollout_ranks)}, "
            f"but {world} ranks run"
        )
    bridge = Bridge(places, rank, store, device, timeout)
    try:
        yield bridge
    finally:
        bridge.close()


def _weight_group(store: Store, members: list[int], rank: int, device: Device, timeout: timedelta) -> Any:
    store = PrefixStore("weights", store)
    if device == "cpu":
        return dist.ProcessGroupGloo(store, members.index(rank), len(members), timeout)
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout
    return dist.ProcessGroupNCCL(store, members.index(rank), len(members), options)
