"""The ranks that take part in a sync, and what they tell and give each other."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Protocol

import torch.distributed as dist
from torch import Tensor


class Pending(Protocol):
    """An exchange that may still be under way."""

    def wait(self) -> object:
        """Have the current stream, or on a CPU this thread, wait for its end."""
        ...


class Peers(Protocol):
    """All trainer ranks. Every method is a collective call of them."""

    rank: int
    size: int

    def gather[T](self, item: T) -> list[T]:
        """Every rank's small object, by rank."""
        ...

    def exchange(self, sent: Tensor, sent_bytes: Sequence[int], got: Tensor, got_bytes: Sequence[int]) -> Pending:
        """Start to give each rank its consecutive bytes of `sent` and to fill `got` with theirs; uint8 [n] both."""
        ...


class Alone:
    """A process without others."""

    rank, size = 0, 1

    def gather[T](self, item: T) -> list[T]:
        """See `Peers`."""
        return [item]

    def exchange(self, sent: Tensor, sent_bytes: Sequence[int], got: Tensor, got_bytes: Sequence[int]) -> Pending:
        """See `Peers`."""
        got.copy_(sent)
        return _Done()


class World:
    """The default process group."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def gather[T](self, item: T) -> list[T]:
        """See `Peers`."""
        items: list[T | None] = [None] * self.size
        dist.all_gather_object(items, item)
        return items  # type: ignore[return-value]  # each is filled

    def exchange(self, sent: Tensor, sent_bytes: Sequence[int], got: Tensor, got_bytes: Sequence[int]) -> Pending:
        """See `Peers`."""
        work: Pending = dist.all_to_all_single(got, sent, list(got_bytes), list(sent_bytes), async_op=True)
        return work


class _Done:
    def wait(self) -> object:
        return None


def this_processes_peers() -> Peers:
    """The default process group's ranks, or nobody else."""
    return World() if dist.is_initialized() else Alone()


def host_name() -> str:
    """Tells hosts apart."""
    return socket.gethostname()
