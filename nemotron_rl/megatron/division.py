"""A batch cut into micro-batches: padded rows of this rank's own samples, or packed ones shared out among all ranks.

B samples of this data-parallel rank · L tokens of the longest · G samples of all ranks · M MoE layers
K experts per token
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from nemotron_rl.megatron import process
from nemotron_rl.megatron.micro_batch import MicroBatch, packed_row, padded_rows
from nemotron_rl.rl.batch import Batch
from nemotron_rl.rl.packing import Bin, plan_micro_batches
from nemotron_rl.rl.routes import stack_routes


@dataclass(frozen=True)
class Division:
    """The micro-batches that this rank computes."""

    micro_batches: Sequence[MicroBatch]
    """In the order of computation; every data-parallel rank has equally many."""
    samples: Sequence[int] | None
    """Which of all ranks' samples they hold, in that order; None when they are the rank's own, in their order."""
    shape: tuple[int, int]
    """[B, L] of the batch that was divided."""

    def tokens(self) -> tuple[int, int]:
        """Tokens of this rank's samples, and how many the model computes for them, padding included."""
        real = sum(int(one.batch.length_B.sum()) for one in self.micro_batches)
        return real, sum(one.source_RS.numel() for one in self.micro_batches)

    def restore(self, parts: Sequence[Tensor]) -> Tensor:
        """Values of the divided batch's tokens, [B, L], from those of each micro-batch; a collective call."""
        if self.samples is None:
            return torch.cat(list(parts))
        samples, length = self.shape
        values_GL = parts[0].new_zeros(samples * process.dp_size(), parts[0].shape[1])
        values_GL[list(self.samples)] = torch.cat(list(parts))
        first = process.dp_rank() * samples
        return process.sum_over_dp(values_GL)[first : first + samples, :length]


def divide(
    batch: Batch, *, micro_batch_size: int, max_tokens_per_gpu: int | None, moe_layers: Sequence[int] | None = None
) -> Division:
    """Micro-batches of `micro_batch_size` samples, or packed ones of up to `max_tokens_per_gpu` tokens per rank.

    Of the batch's routes those of `moe_layers` are kept, this pipeline stage's own; None keeps all.

    Raises:
        InputError: a sample does not fit into `max_tokens_per_gpu`.
    """
    grid = process.sequence_grid()
    if batch.routes_BLMK is not None and moe_layers is not None:
        batch = batch.with_(routes_BLMK=batch.routes_BLMK[:, :, list(moe_layers)])
    batch = batch.to(process.device())
    shape = (batch.tokens_BL.shape[0], batch.tokens_BL.shape[1])
    if max_tokens_per_gpu is None:
        return Division([padded_rows(rows, grid) for rows in batch.micro_batches(micro_batch_size)], None, shape)
    everyones = _gathered(batch.with_(routes_BLMK=None))
    real = everyones.length_B.tolist()
    lengths = [grid.padded(length) for length in real]
    plan = plan_micro_batches(lengths, process.dp_size(), grid.capacity(max_tokens_per_gpu))
    mine = plan.ranks[process.dp_rank()]
    parts = [everyones.map(lambda tensor, one=one: tensor[list(one)]) for one in mine]  # type: ignore[misc]
    if batch.routes_BLMK is not None:
        width = everyones.tokens_BL.shape[1]
        routes = iter(_exchanged(batch.routes_BLMK, plan.ranks, real))
        parts = [
            part.with_(routes_BLMK=stack_routes([next(routes) for _ in one], width))
            for part, one in zip(parts, mine, strict=True)
        ]
    packed = [packed_row(part, grid) for part in parts]
    return Division(packed, [sample for one in mine for sample in one], shape)


def _exchanged(routes_BLMK: Tensor, ranks: Sequence[Sequence[Bin]], lengths: Sequence[int]) -> list[Tensor]:
    """Routes [length, M, K] of this rank's samples of the plan, in its order; each rank sends only what others need.

    Routes are hundreds of bytes per token and layer: gathering all of them everywhere would fill the memory.
    """
    held, me = len(routes_BLMK), process.dp_rank()
    sample_bytes = routes_BLMK[0, 0].nbytes
    wanted = [list(chain.from_iterable(bins)) for bins in ranks]

    def sent(owner: int, to: int) -> list[int]:
        return [sample for sample in wanted[to] if sample // held == owner]

    mine = [[routes_BLMK[s - me * held, : lengths[s]].reshape(-1) for s in sent(me, to)] for to in range(len(ranks))]
    outgoing = [torch.cat([routes_BLMK.new_empty(0), *parts]).view(torch.uint8) for parts in mine]
    incoming = [sum(lengths[s] for s in sent(owner, me)) * sample_bytes for owner in range(len(ranks))]
    received: dict[int, Tensor] = {}
    for owner, data in enumerate(process.exchanged_over_dp(outgoing, incoming)):
        samples = sent(owner, me)
        values = data.view(routes_BLMK.dtype).view(-1, *routes_BLMK.shape[2:])
        received |= zip(samples, values.split([lengths[s] for s in samples]), strict=True)
    return [received[sample] for sample in wanted[me]]


def _gathered(batch: Batch) -> Batch:
    """The samples of all data-parallel ranks, padded to the longest. A few bytes per token; activations are thousands.

    Whoever holds all samples can balance them without asking, and samples of one prompt need not stay together.
    """
    longest = process.max_over_dp(batch.tokens_BL.shape[1])
    return batch.map(
        lambda tensor: process.concatenated_over_dp(
            torch.nn.functional.pad(tensor, (0, longest - tensor.shape[1])).contiguous()
        )
    )
