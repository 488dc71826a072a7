"""How the samples of one forward pass lie in the model's input: padded rows, or packed into one row; and the way back.

B samples · L tokens of the longest · R rows of the model's input · S tokens of a row, all context-parallel ranks
together · s this rank's tokens of a row
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import lcm

import torch
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region
from torch import Tensor
from torch import distributed as dist

from nemotron_rl.megatron.modules.documents import context_parallel_order
from nemotron_rl.rl.batch import Batch
from nemotron_rl.rl.routes import NO_ROUTE

PADDING = -1
"""In a layout's `source_RS`: no token of a sample."""


@dataclass(frozen=True)
class SequenceGrid:
    """What the lengths of sequences must be multiples of, and which part of them this rank has."""

    tp: int = 1
    """Tensor-parallel ranks; under sequence parallelism each has equally many tokens."""
    cp_group: dist.ProcessGroup | None = None
    """Context-parallel ranks; None for one."""

    @property
    def cp(self) -> int:
        """Number of context-parallel ranks."""
        return 1 if self.cp_group is None else self.cp_group.size()

    @property
    def document(self) -> int:
        """Each document is padded to a multiple of this: context parallelism cuts it into 2 cp equal chunks."""
        return 2 * self.cp if self.cp > 1 else 1

    @property
    def row(self) -> int:
        """The length of a row is a multiple of this."""
        return self.cp * lcm(2, self.tp) if self.cp > 1 else self.tp

    def padded(self, length: int) -> int:
        """Tokens that a document of `length` tokens takes up."""
        return _rounded_up(length, self.document)

    def capacity(self, tokens_per_gpu: int) -> int:
        """Padded tokens of documents whose row keeps each rank within `tokens_per_gpu`."""
        return tokens_per_gpu * self.cp // self.row * self.row


@dataclass(frozen=True)
class MicroBatch:
    """Samples, and where each of their tokens is in the model's input."""

    batch: Batch
    """The samples, padded to a rectangle; losses see them like this whatever the layout."""
    source_RS: Tensor
    """Index into the flattened [B, L] of each token of the model's input, or PADDING; int64."""
    packed: PackedSeqParams | None
    """Bounds of the packed documents; None when each row is one sample."""
    grid: SequenceGrid

    @cached_property
    def tokens_Rs(self) -> Tensor:
        """This rank's token ids; 0 where there is no sample's."""
        return self.place(self.batch.tokens_BL)

    @property
    def routes_RsMK(self) -> Tensor | None:
        """This rank's routes, NO_ROUTE in padding, where the batch's lie; None when it has none."""
        routes_BLMK = self.batch.routes_BLMK
        return None if routes_BLMK is None else self.place(routes_BLMK, fill=NO_ROUTE)

    @property
    def padding_Rs(self) -> Tensor:
        """Which of this rank's tokens are no sample's, bool [R, s]."""
        place_L = torch.arange(self.batch.tokens_BL.shape[1], device=self.batch.tokens_BL.device)
        return ~self.place(place_L < self.batch.length_B[:, None]).bool()

    def place(self, values_BL: Tensor, fill: int = 0) -> Tensor:
        """This rank's values in the order of the model's input, [R, s], `fill` in padding; [B, L, ...] too."""
        flat = values_BL.flatten(0, 1)
        mine_Rs = self._mine(self.source_RS).to(flat.device)
        real_Rs = (mine_Rs != PADDING).view(*mine_Rs.shape, *[1] * (flat.dim() - 1))
        return torch.where(real_Rs, flat[mine_Rs.clamp(min=0)], fill)

    def collect(self, values_Rs: Tensor) -> Tensor:
        """The inverse: every rank's values, [B, L], 0 where the model had no token; [R, s, ...] gives [B, L, ...].

        Differentiable: each context-parallel rank gets the gradient of its own values, as all compute the same loss.
        """
        if self.grid.cp > 1:
            parts_sR = gather_from_sequence_parallel_region(
                values_Rs.transpose(0, 1).contiguous(), tensor_parallel_output_grad=False, group=self.grid.cp_group
            )
            values_Rs = parts_sR.transpose(0, 1)[:, torch.argsort(self._order)]
        real_RS = self.source_RS != PADDING
        samples, length = self.batch.tokens_BL.shape
        flat = values_Rs.new_zeros(samples * length, *values_Rs.shape[2:])
        return flat.index_put((self.source_RS[real_RS],), values_Rs[real_RS]).unflatten(0, (samples, length))

    @cached_property
    def _order(self) -> Tensor:
        """Place in the row of each token, in the order in which context-parallel ranks hold them."""
        length = self.source_RS.shape[1]
        return context_parallel_order(length, self.grid.cp, self.packed).to(self.source_RS.device)

    def _mine(self, values_RS: Tensor) -> Tensor:
        if self.grid.cp_group is None or self.grid.cp == 1:
            return values_RS
        return values_RS[:, self._order.chunk(self.grid.cp)[self.grid.cp_group.rank()]]


def padded_rows(batch: Batch, grid: SequenceGrid) -> MicroBatch:
    """Each sample is a row, as long as the longest needs."""
    samples, length = batch.tokens_BL.shape
    source_BL = torch.arange(samples * length).view(samples, length)
    source_RS = torch.nn.functional.pad(source_BL, (0, -length % grid.row), value=PADDING)
    return MicroBatch(batch, source_RS.to(batch.tokens_BL.device), None, grid)


def packed_row(batch: Batch, grid: SequenceGrid) -> MicroBatch:
    """All samples are documents of one row, one after the other without the padding between them.

    A last document of padding makes the row as long as the grid needs, if it must be.
    """
    length = batch.tokens_BL.shape[1]
    parts: list[Tensor] = []
    for sample, tokens in enumerate(batch.length_B.tolist()):
        document = torch.full((grid.padded(tokens),), PADDING)
        document[:tokens] = sample * length + torch.arange(tokens)
        parts.append(document)
    total = sum(map(len, parts))
    if rest := -total % grid.row:
        parts.append(torch.full((rest,), PADDING))
    device = batch.tokens_BL.device
    packed = _packed_params([len(part) for part in parts], device)
    return MicroBatch(batch, torch.cat(parts)[None].to(device), packed, grid)


def _packed_params(lengths: Sequence[int], device: torch.device) -> PackedSeqParams:
    """Megatron's own description, padding of a document counted as part of it: causality keeps it from the rest."""
    bounds = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)
    return PackedSeqParams(
        qkv_format="thd",
        cu_seqlens_q=bounds,
        cu_seqlens_kv=bounds,
        cu_seqlens_q_padded=bounds,
        cu_seqlens_kv_padded=bounds,
        max_seqlen_q=max(lengths),
        max_seqlen_kv=max(lengths),
        total_tokens=sum(lengths),
    )


def _rounded_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
