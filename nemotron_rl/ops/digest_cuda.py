"""The digest of `digest.py` as a Triton kernel over many tensors. Imported only where there is a GPU or a test of it.

Each thread adds up four neighbouring columns from 16-byte loads that do not wait for each other; nothing passes
between threads before a program's last step, a sum and one atomic addition.
"""

from collections.abc import Callable, Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from nemotron_rl.ops import digest

TILES_PER_PROGRAM = 4
WARPS = 4
"""Of 32 threads with 4 columns each: one row of a tile."""
CONSTANTS = {name: getattr(digest, name) for name in ("ROWS", "COLUMNS", "KEYS", "PLACE", "A", "B")}


@triton.jit
def digest_kernel(
    chunk_C4: tl.tensor,
    out_N: tl.tensor,
    ALIGNED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    KEYS: tl.constexpr,
    PLACE: tl.constexpr,
    A: tl.constexpr,
    B: tl.constexpr,
) -> None:
    """One program a chunk: some whole tiles of one tensor, and what is left at its end.

    A chunk is its address, which `ALIGNED` bytes divide, its first column, its number of words, and the tensor's.
    """
    chunk = chunk_C4 + 4 * tl.program_id(0)
    pointer = tl.multiple_of(tl.load(chunk).to(tl.pointer_type(tl.uint32)), ALIGNED)
    first, words, tensor = tl.load(chunk + 1), tl.load(chunk + 2), tl.load(chunk + 3)
    column = tl.arange(0, COLUMNS)
    place = (first + column).to(tl.uint64) * PLACE
    total = tl.zeros([COLUMNS], tl.uint64)
    for _ in range(words // (ROWS * COLUMNS)):
        s = place
        for row in tl.static_range(ROWS):
            word = tl.load(pointer + (row * COLUMNS + column))
            s += word.to(tl.uint64) * KEYS[row]
        total += _mix(s, A, B)
        place += COLUMNS * PLACE % (1 << 64)
        pointer = tl.multiple_of(pointer + ROWS * COLUMNS, ALIGNED)
    rest = words % (ROWS * COLUMNS)
    if rest > 0:
        s = _part(pointer, place, rest, ROWS, COLUMNS, KEYS)
        total += tl.where(column < rest, _mix(s, A, B), 0)
    tl.atomic_add(out_N + tensor, tl.sum(total, 0).to(tl.int64, bitcast=True), sem="relaxed")


@triton.jit
def _part(
    pointer: tl.tensor,
    place: tl.tensor,
    words: tl.tensor,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    KEYS: tl.constexpr,
) -> tl.tensor:
    """s of a tile's columns of which only the first `words` words are there: whole rows, and a part of the next."""
    column = tl.arange(0, COLUMNS)
    whole = words // COLUMNS
    s, key = place, tl.full([], KEYS[0], tl.uint64)
    for row in tl.static_range(ROWS):
        # One condition for the row, so that these loads too are of 16 bytes.
        word = tl.load(pointer + (row * COLUMNS + column), mask=row < whole, other=0)
        s += word.to(tl.uint64) * KEYS[row]
        key = tl.where(row == whole, tl.full([], KEYS[row], tl.uint64), key)
    inside = column < words % COLUMNS
    return s + tl.load(pointer + (whole * COLUMNS + column), mask=inside, other=0).to(tl.uint64) * key


@triton.jit
def _mix(x: tl.tensor, A: tl.constexpr, B: tl.constexpr) -> tl.tensor:
    x = (x ^ (x >> 32)) * A
    x = (x ^ (x >> 32)) * B
    return x ^ (x >> 32)


def prepare(tensors: Sequence[Tensor]) -> Callable[[], Tensor]:
    """A function that computes the digests, int64 [n], of these tensors of one device, which must not move.

    What lies in memory in another order, or at an address that 4 does not divide, is copied anew at each call.
    """
    words = [digest.as_words(tensor) for tensor in tensors]
    same = [w.data_ptr() == tensor.data_ptr() for w, tensor in zip(words, tensors, strict=True)]
    copied = [index for index, place in enumerate(same) if not place and len(words[index])]
    nbytes = [tensor.nbytes for tensor in tensors]
    kept = [w if place else w.new_empty(0) for w, place in zip(words, same, strict=True)]
    in_place = _launches(kept, nbytes)

    def run() -> Tensor:
        out_N = in_place()
        if copied:
            anew = [digest.as_words(tensors[index]) for index in copied]
            out_N[copied] = _launches(anew, [nbytes[index] for index in copied])()
        return out_N

    return run


def _launches(words: Sequence[Tensor], nbytes: Sequence[int]) -> Callable[[], Tensor]:
    """The same for int32 tensors, which it keeps; they had `nbytes` bytes before they were padded to whole words."""
    device = words[0].device
    table_C4 = chunks([w.data_ptr() for w in words], [len(w) for w in words])
    length_N = torch.tensor([digest.signed(digest.of_length(n)) for n in nbytes], dtype=torch.int64).to(device)
    vector_C = table_C4[:, 0] % 16 == 0
    launches = [(16, table_C4[vector_C].to(device)), (4, table_C4[~vector_C].to(device))]
    kept = list(words)

    def run() -> Tensor:
        out_N = length_N.clone()
        with torch.cuda.device_of(kept[0]):
            for aligned, part_C4 in launches:
                if len(part_C4):
                    digest_kernel[(len(part_C4),)](part_C4, out_N, ALIGNED=aligned, **CONSTANTS, num_warps=WARPS)
        return out_N

    return run


def chunks(address: Sequence[int], words: Sequence[int], tiles: int = TILES_PER_PROGRAM) -> Tensor:
    """What each program does, int64 [C, 4]: address in bytes, first column, words, and number of the tensor."""
    most = tiles * digest.TILE
    words_N = torch.tensor(words, dtype=torch.int64)
    chunks_N = -(-words_N // most)
    tensor_C = torch.repeat_interleave(torch.arange(len(words)), chunks_N)
    first_C = (torch.arange(len(tensor_C)) - (chunks_N.cumsum(0) - chunks_N)[tensor_C]) * most
    words_C = torch.clamp(words_N[tensor_C] - first_C, max=most)
    address_C = torch.tensor(address, dtype=torch.int64)[tensor_C] + 4 * first_C
    return torch.stack([address_C, first_C // digest.ROWS, words_C, tensor_C], dim=1)
