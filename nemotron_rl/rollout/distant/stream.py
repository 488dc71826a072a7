"""The rollout side of a push: buckets of weights as they come from the first trainer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from nemotron_rl.errors import NemotronRLError
from nemotron_rl.rollout.distant.bridge import Bridge, Channel
from nemotron_rl.rollout.distant.calls import Broken, End
from nemotron_rl.sync.buckets import BUCKET_BYTES, Bucket, Unpacker

Named = Sequence[tuple[str, Tensor]]


class WeightStream:
    """One push. While a bucket is used, the next one is already on its way into the other buffer."""

    def __init__(self, bridge: Bridge, buffers: Sequence[Tensor]) -> None:
        """`buffers`: from `stream_buffers`; none may be in use."""
        self._bridge, self._buffers = bridge, buffers
        self._unpacker = Unpacker()
        self._ending: End | Broken | None = None
        self._count = 0

    def __iter__(self) -> Iterator[Named]:
        """The tensors of each bucket, valid until the next."""
        coming = self._next()
        while coming is not None:
            bucket, data_N, work = coming
            work.wait()
            coming = self._next()
            yield self._unpacker.tensors(bucket, data_N)

    def checksums(self) -> Mapping[str, str]:
        """Those that the trainer took of what it sent, once all of that has come; what is left is thrown away.

        Raises:
            NemotronRLError: when the trainer could not send all.
        """
        while (unused := self._next()) is not None:
            unused[-1].wait()
        if isinstance(self._ending, End):
            return self._ending.checksums
        raise NemotronRLError(f"the trainer stopped sending weights: {self._ending.reason if self._ending else ''}")

    def _next(self) -> tuple[Bucket, Tensor, dist.Work] | None:
        if self._ending is not None:
            return None
        header = self._bridge.receive(0, Channel.WEIGHTS)
        if not isinstance(header, Bucket):
            self._ending = header
            return None
        data_N = self._buffers[self._count % len(self._buffers)][: header.nbytes]
        self._count += 1
        return header, data_N, self._bridge.broadcast(data_N)


def stream_buffers(device: torch.device, size: int = BUCKET_BYTES) -> list[Tensor]:
    """Memory for two buckets."""
    return [torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2)]
