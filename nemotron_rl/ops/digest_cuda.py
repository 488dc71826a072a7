"""The digest of `digest.py` as one Triton kernel over many tensors. Imported only where there is a GPU."""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from nemotron_rl.ops.digest import FIRST, POSITION, SECOND, as_words

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


def digests_on_gpu(tensors: Sequence[Tensor]) -> Tensor:
    """See `digests`."""
    words = [as_words(tensor) for tensor in tensors]
    device = words[0].device
    size_T = torch.tensor([len(w) for w in words])
    address_T = torch.tensor([w.data_ptr() for w in words])
    chunks_T = -(-size_T // _WORDS_PER_PROGRAM)
    tensor_C = torch.repeat_interleave(torch.arange(len(words)), chunks_T)
    if not len(tensor_C):
        return torch.zeros(len(words), dtype=torch.int64, device=device)
    place_C = torch.arange(len(tensor_C)) - (chunks_T.cumsum(0) - chunks_T)[tensor_C]
    first_C = place_C * _WORDS_PER_PROGRAM
    count_C = torch.minimum(size_T[tensor_C] - first_C, torch.tensor(_WORDS_PER_PROGRAM))
    table = torch.stack([address_T[tensor_C] + 4 * first_C, first_C, count_C, tensor_C]).to(device, non_blocking=True)
    out_T2 = torch.zeros(len(words), 2, dtype=torch.int32, device=device)
    with torch.cuda.device(device):
        _digest_kernel[(len(tensor_C),)](
            *table, out_T2, STEP=_WORDS_PER_STEP, POSITION=POSITION, FIRST=FIRST, SECOND=SECOND, num_warps=8
        )
    return out_T2.view(torch.int64).view(-1)  # little-endian: the low half comes first
