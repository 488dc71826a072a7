"""A 64-bit digest of a tensor's bytes that a GPU computes as fast as it can read them.

The bytes, in row-major order, are little-endian 32-bit words, zero-padded at the end to a whole word. The words fill
tiles of ROWS x COLUMNS, row by row; only the last tile may be partly filled. Column c, counted through all tiles from
0, holds up to ROWS words w_r. With all arithmetic modulo 2^64,

    s_c    = c * PLACE + sum over r of w_r * KEYS[r]
    digest = mix(bytes xor LENGTH) + sum over c of mix(s_c)         over the columns that hold a word
    mix(x) = shift(B * shift(A * shift(x)))                         where shift(x) = x xor (x >> 32)

KEYS, PLACE and LENGTH are fixed random odd numbers. A word costs two multiply-adds, and a GPU's thread adds up columns
without asking another thread; only every ROWS-th word pays for the mixing. What that finds:

- One changed word, always: s_c changes by d * KEYS[r], which is not 0 since 0 < |d| < 2^32 and the key is odd, and
  mix, made of xor-shifts and products with odd numbers, is a bijection: one term of the sum changes.
- Two words of a column exchanged, and the sign bits of any of its words flipped, always: no difference of two keys is
  a multiple of 2^33, nor is a sum of any of them with any signs (tests/ops/test_digest_keys.py).
- Other bytes within one column unless sum of d_r * KEYS[r] = 0, which for words d_r that do not know the keys has a
  chance of at most 2^-32, and of 2^-63 once one d_r is odd: this is multilinear hashing (Lemire and Kaser 2014,
  arXiv 1202.4961), which is why the sum keeps 64 bits. Modulo 2^32, negating a float32 tensor would change nothing.
- Zeros appended within the last columns, always: the digest changes by mix(bytes xor LENGTH) alone.
- Anything else, a block that moved or two tensors exchanged, unless two sums of mixed 64-bit numbers meet by chance.

The order in which columns are added up is free. The digest finds faults, not forgeries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

# R rows and C columns of tiles · N tensors or words · L the shift's low half
ROWS, COLUMNS = 16, 512
TILE = ROWS * COLUMNS
_TILES_AT_ONCE = 64
_LOW = 0xFFFFFFFF
_WORD = 1 << 64


def _random(index: int) -> int:
    """Output number `index` of SplitMix64 seeded with 0 (Steele, Lea, Flood 2014), made odd."""
    z = index * 0x9E3779B97F4A7C15 % _WORD
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % _WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB % _WORD
    return z ^ z >> 31 | 1


KEYS = tuple(_random(1 + row) for row in range(ROWS))
PLACE, LENGTH = _random(1 + ROWS), _random(2 + ROWS)
# The multipliers of MurmurHash3's 64-bit finalizer (Appleby, public domain).
A, B = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53


class Digester:
    """Digests of the same tensors again and again: on a GPU, where they lie is looked up once."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        """The tensors may change but must not move."""
        self._tensors = list(tensors)
        self._on_device: Callable[[], Tensor] | None = None
        if self._tensors and self._tensors[0].is_cuda:
            from nemotron_rl.ops.digest_cuda import prepare

            self._on_device = prepare(self._tensors)

    def run(self) -> Tensor:
        """See `digests`."""
        if self._on_device is None:
            return torch.tensor([digest(tensor) for tensor in self._tensors], dtype=torch.int64)
        return self._on_device()


def digests(tensors: Sequence[Tensor]) -> Tensor:
    """Digest of each tensor's bytes in row-major order, int64 [len(tensors)], on the tensors' device.

    On a GPU all tensors together take one kernel launch, or two where some begin at an address that 16 does not divide.
    """
    return Digester(tensors).run()


def digest(tensor: Tensor) -> int:
    """The same of one tensor, in plain torch, as a signed 64-bit number."""
    words_N = as_words(tensor)
    total = of_length(tensor.nbytes)
    step = _TILES_AT_ONCE * TILE
    whole = len(words_N) - len(words_N) % TILE
    for start in range(0, whole, step):
        block_TRC = words_N[start : min(start + step, whole)].view(-1, ROWS, COLUMNS)
        total += _mixed_sum(block_TRC, start // ROWS)
    if rest := len(words_N) - whole:
        columns = min(rest, COLUMNS)
        padded_N = torch.nn.functional.pad(words_N[whole:], (0, -rest % columns))
        total += _mixed_sum(padded_N.view(1, -1, columns), whole // ROWS)
    return signed(total)


def of_length(nbytes: int) -> int:
    """What a tensor's length adds to its digest, in 0..2^64."""
    x = nbytes ^ LENGTH
    for factor in (A, B):
        x = (x ^ x >> 32) * factor % _WORD
    return x ^ x >> 32


def signed(value: int) -> int:
    """`value` modulo 2^64 as torch.int64 holds it."""
    return (value + (1 << 63)) % _WORD - (1 << 63)


def as_words(tensor: Tensor) -> Tensor:
    """The tensor's bytes as int32 [n], zero-padded at the end to whole words; a view where that is possible."""
    data = tensor.detach().contiguous().view(-1).view(torch.uint8)
    if len(data) % 4:
        data = torch.nn.functional.pad(data, (0, -len(data) % 4))
    if data.data_ptr() % 4 or data.storage_offset() % 4:  # an empty tensor has no address, but an offset
        data = data.clone()
    return data.view(torch.int32)


def _mixed_sum(word_TRC: Tensor, first_column: int) -> int:
    """Sum of mix(s_c) over the columns of some tiles, up to a multiple of 2^64. int64 arithmetic wraps."""
    tiles, rows, columns = word_TRC.shape
    count = tiles * columns
    s_TC = torch.arange(first_column, first_column + count, device=word_TRC.device).view(tiles, columns)
    s_TC *= signed(PLACE)
    for row in range(rows):
        s_TC.add_(word_TRC[:, row].long().bitwise_and_(_LOW), alpha=signed(KEYS[row]))
    for factor in (A, B):
        s_TC = _shift(s_TC).mul_(signed(factor))
    return int(_shift(s_TC).sum())


def _shift(x_TC: Tensor) -> Tensor:
    """x xor (x >> 32), in place; torch shifts the sign in, so it is masked away."""
    return x_TC.bitwise_xor_((x_TC >> 32).bitwise_and_(_LOW))
