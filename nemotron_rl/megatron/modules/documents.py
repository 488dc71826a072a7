"""Where the documents of a packed sequence begin and end, and which token is where under context parallelism."""

from __future__ import annotations

from itertools import pairwise

import torch
from megatron.core.packed_seq_params import PackedSeqParams
from torch import Tensor


def document_bounds(total: int, packed: PackedSeqParams | None) -> list[tuple[int, int]]:
    """[(start, end)] of the documents in a sequence of `total` tokens, all context-parallel ranks together."""
    if packed is None:
        return [(0, total)]
    padded = packed.cu_seqlens_q_padded
    cu_seqlens: list[int] = (packed.cu_seqlens_q if padded is None else padded).tolist()
    if cu_seqlens[-1] != total:
        cu_seqlens.append(total)
    return [(start, end) for start, end in pairwise(cu_seqlens) if end > start]


def context_parallel_order(total: int, cp_size: int, packed: PackedSeqParams | None) -> Tensor:
    """Sequence position of each token in the order in which the ranks hold them, rank 0's first; int64 [total].

    Megatron cuts every document into 2 * cp_size chunks and gives rank r the chunks r and 2 * cp_size - 1 - r.
    """
    per_rank: list[list[Tensor]] = [[] for _ in range(cp_size)]
    for start, end in document_bounds(total, packed):
        chunks = torch.arange(start, end).chunk(2 * cp_size)
        for rank, held in enumerate(per_rank):
            held += [chunks[rank], chunks[2 * cp_size - 1 - rank]]
    return torch.cat([torch.cat(held) for held in per_rank])
