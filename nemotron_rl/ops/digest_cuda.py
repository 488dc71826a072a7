"""The digest of `digest.py` as one Triton kernel over many tensors. Imported only where there is a GPU."""

from collections.abc import Callable, Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from nemotron_rl.ops.digest import FIRST, POSITION, SECOND

_WORDS_PER_STEP = 4096
_WORDS_PER_PROGRAM = 16 * _WORDS_PER_STEP


@triton.jit
def _digest_kernel(
    address_C: tl.tensor,
    first_C: tl.tensor,
    words_C: tl.tensor,
    tensor_C: tl.tensor,
    out_T2: tl.tensor,
    STEP: tl.constexpr,
    POSITION: tl.constexpr,
    FIRST: tl.constexpr,
    SECOND: tl.constexpr,
) -> None:
    """One program a chunk C: words first..first + words of one tensor, whose chunk begins at `address`."""
    chunk = tl.program_id(0)
    pointer = tl.load(address_C + chunk).to(tl.pointer_type(tl.uint32))
    first, words = tl.load(first_C + chunk), tl.load(words_C + chunk)
    low = tl.zeros([STEP], tl.uint32)
    high = tl.zeros([STEP], tl.uint32)
    for start in range(0, words, STEP):
        place = start + tl.arange(0, STEP)
        inside = place < words
        word = tl.load(pointer + place, mask=inside, other=0)
        h = word ^ ((first + place).to(tl.uint32) * POSITION)
        h = (h ^ (h >> 15)) * FIRST
        h = h ^ (h >> 13)
        g = h * SECOND
        low += tl.where(inside, h, 0)
        high += tl.where(inside, g ^ (g >> 16), 0)
    out = out_T2 + 2 * tl.load(tensor_C + chunk)
    tl.atomic_add(out, tl.sum(low, 0).to(tl.int32, bitcast=True), sem="relaxed")
    tl.atomic_add(out + 1, tl.sum(high, 0).to(tl.int32, bitcast=True), sem="relaxed")


def prepare(words: Sequence[Tensor]) -> Callable[[], Tensor]:
    """A function that computes the digests, int64 [n], of these int32 tensors, which it keeps, where they lie now."""
    device = words[0].device
    size_T = torch.tensor([len(w) for w in words])
    chunks_T = -(-size_T // _WORDS_PER_PROGRAM)
    tensor_C = torch.repeat_interleave(torch.arange(len(words)), chunks_T)
    first_C = (torch.arange(len(tensor_C)) - (chunks_T.cumsum(0) - chunks_T)[tensor_C]) * _WORDS_PER_PROGRAM
    count_C = torch.minimum(size_T[tensor_C] - first_C, torch.tensor(_WORDS_PER_PROGRAM))
    address_C = torch.tensor([w.data_ptr() for w in words])[tensor_C] + 4 * first_C
    table = torch.stack([address_C, first_C, count_C, tensor_C]).to(device)
    constants = {"STEP": _WORDS_PER_STEP, "POSITION": POSITION, "FIRST": FIRST, "SECOND": SECOND}

    def run() -> Tensor:
        out_T2 = torch.zeros(len(words), 2, dtype=torch.int32, device=device)
        if table.shape[1]:
            with torch.cuda.device(device):
                _digest_kernel[(table.shape[1],)](*table, out_T2, **constants, num_warps=8)
        return out_T2.view(torch.int64).view(-1)  # little-endian: the low half comes first

    return run
