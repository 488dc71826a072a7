"""A 64-bit digest of a tensor's bytes that a GPU computes at close to the speed of reading them.

The bytes are read as little-endian 32-bit words w_i, zero-padded at the end. With all arithmetic modulo 2^32,

    h_i = w_i xor (i * 0x9E3779B1)
    h_i = (h_i xor h_i >> 15) * 0x85EBCA6B
    low = sum of (h_i xor h_i >> 13)
    high = sum of g_i xor (g_i >> 16)   where g_i = (h_i xor h_i >> 13) * 0xC2B2AE35

and the digest is high * 2^32 + low. The mixing steps are those of MurmurHash3's finalizer (Appleby, public domain),
each of which is a bijection, so a single changed word always changes the digest; sums do not depend on the order in
which blocks are added up. It finds faults, not forgeries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

POSITION, FIRST, SECOND = 0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35
_MASK = 0xFFFFFFFF
_BLOCK = 1 << 22


class Digester:
    """Digests of the same tensors again and again: on a GPU, where they lie is looked up once."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        """The tensors may change but must not move."""
        self._tensors = list(tensors)
        self._in_place: Callable[[], Tensor] | None = None
        if self._tensors and self._tensors[0].is_cuda:
            from nemotron_rl.ops.digest_cuda import prepare

            words = [as_words(tensor) for tensor in self._tensors]
            alias = [w.data_ptr() == tensor.data_ptr() for w, tensor in zip(words, self._tensors, strict=True)]
            # What had to be copied to be read as words must be copied anew each time.
            self._copied = [i for i, same in enumerate(alias) if not same and len(words[i])]
            self._in_place = prepare([w if same else w[:0] for w, same in zip(words, alias, strict=True)])

    def run(self) -> Tensor:
        """See `digests`."""
        if self._in_place is None:
            return torch.tensor([digest(tensor) for tensor in self._tensors], dtype=torch.int64)
        out_N = self._in_place()
        if self._copied:
            from nemotron_rl.ops.digest_cuda import prepare

            out_N[self._copied] = prepare([as_words(self._tensors[i]) for i in self._copied])()
        return out_N


def digests(tensors: Sequence[Tensor]) -> Tensor:
    """Digest of each tensor's bytes in row-major order, int64 [len(tensors)], on the tensors' device.

    On a GPU all tensors together take one kernel launch.
    """
    return Digester(tensors).run()


def digest(tensor: Tensor) -> int:
    """The same of one tensor, in plain torch, as a signed 64-bit number."""
    words_N = as_words(tensor)
    low = high = 0
    for start in range(0, len(words_N), _BLOCK):
        first, second = _mixed(words_N[start : start + _BLOCK].long() & _MASK, start)
        low, high = low + int(first.sum()), high + int(second.sum())
    value = (high & _MASK) << 32 | (low & _MASK)
    return value - (1 << 64) if value >= 1 << 63 else value


def as_words(tensor: Tensor) -> Tensor:
    """The tensor's bytes as int32 [n], zero-padded at the end to whole words; a view where that is possible."""
    data = tensor.detach().contiguous().view(-1).view(torch.uint8)
    if len(data) % 4:
        data = torch.nn.functional.pad(data, (0, -len(data) % 4))
    if data.data_ptr() % 4:
        data = data.clone()
    return data.view(torch.int32)


def _mixed(word_N: Tensor, first_index: int) -> tuple[Tensor, Tensor]:
    """What word i adds to the low and to the high half, as int64 below 2^32."""
    index_N = torch.arange(first_index, first_index + len(word_N), device=word_N.device)
    h_N = word_N ^ _times(index_N & _MASK, POSITION)
    h_N = _times(h_N ^ h_N >> 15, FIRST)
    h_N = h_N ^ h_N >> 13
    g_N = _times(h_N, SECOND)
    return h_N, g_N ^ g_N >> 16


def _times(value_N: Tensor, factor: int) -> Tensor:
    """value * factor modulo 2^32 without leaving int64: the factor is taken in two halves."""
    low = value_N * (factor & 0xFFFF)
    high = (value_N * (factor >> 16) & 0xFFFF) << 16
    return low + high & _MASK
