"""Named tensors as a stream of buckets of bytes, and back. Both sides use a few buffers again and again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

BUCKET_BYTES = 256 << 20
ALIGNMENT = 256
"""Bytes; every tensor in a bucket begins at a multiple, as memory of its own would."""


@dataclass(frozen=True)
class Piece:
    """A tensor in a bucket, or the part of one that is larger than a bucket."""

    name: str
    dtype: str
    """torch's name, such as bfloat16."""
    shape: tuple[int, ...]
    """Of the whole tensor."""
    start: int
    """Where in the tensor's bytes the part begins; 0 for a whole one."""
    place: int
    """Where in the bucket it begins."""
    length: int
    """Bytes."""


@dataclass(frozen=True)
class Bucket:
    """What the bytes of a bucket are."""

    pieces: tuple[Piece, ...]
    nbytes: int
    """Used ones."""


def packed(weights: Iterable[tuple[str, Tensor]], memory: Callable[[], Tensor]) -> Iterator[tuple[Bucket, Tensor]]:
    """Buckets with their bytes, uint8 [nbytes], in the order of the weights.

    A tensor that does not fit into what is left of a bucket begins a new one.

    Args:
        weights: Of any types; each is copied before the next is asked for.
        memory: Gives uint8 [size] for the next bucket, which may be written at once; size is a multiple of `ALIGNMENT`.
    """
    pieces: list[Piece] = []
    buffer, used = memory(), 0
    for name, tensor in weights:
        data_N = as_bytes(tensor)
        start = 0
        while start < len(data_N) or start == 0:
            if pieces and len(data_N) - start > len(buffer) - used:
                yield Bucket(tuple(pieces), used), buffer[:used]
                buffer, used, pieces = memory(), 0, []
            length = min(len(data_N) - start, len(buffer))
            buffer[used : used + length].copy_(data_N[start : start + length])
            pieces.append(Piece(name, _name_of(tensor.dtype), tuple(tensor.shape), start, used, length))
            start, used = start + max(length, 1), min(_aligned(used + length), len(buffer))
    if pieces:
        yield Bucket(tuple(pieces), used), buffer[:used]


class Unpacker:
    """Puts the parts of large tensors together again."""

    def __init__(self) -> None:
        self._under_way: dict[str, Tensor] = {}

    def tensors(self, bucket: Bucket, data_N: Tensor) -> Sequence[tuple[str, Tensor]]:
        """The tensors that are whole with this bucket; views of its bytes, but for those that came in parts."""
        whole = []
        for piece in bucket.pieces:
            part_N = data_N[piece.place : piece.place + piece.length]
            size = _nbytes(piece)
            if piece.length < size:
                if piece.start == 0:
                    self._under_way[piece.name] = data_N.new_empty(size)
                self._under_way[piece.name][piece.start : piece.start + piece.length].copy_(part_N)
                if piece.start + piece.length < size:
                    continue
                part_N = self._under_way.pop(piece.name)
            whole.append((piece.name, part_N.view(getattr(torch, piece.dtype)).view(piece.shape)))
        return whole


def as_bytes(tensor: Tensor) -> Tensor:
    """A tensor's bytes in row-major order, uint8 [n]; a view where that is possible."""
    return tensor.detach().contiguous().view(-1).view(torch.uint8)


def _nbytes(piece: Piece) -> int:
    return math.prod(piece.shape) * getattr(torch, piece.dtype).itemsize


def _name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _aligned(place: int) -> int:
    return -(-place // ALIGNMENT) * ALIGNMENT
