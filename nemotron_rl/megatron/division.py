"""A batch cut into micro-batches: padded rows of this rank's own samples, or packed ones shared out among all ranks.

B samples of this data-parallel rank · L tokens of the longest · G samples of all ranks
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nemotron_rl.megatron import process
from nemotron_rl.megatron.micro_batch import MicroBatch, SequenceGrid, packed_row, padded_rows
from nemotron_rl.rl.batch import Batch
from nemotron_rl.rl.packing import plan_micro_batches


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


def divide(batch: Batch, *, micro_batch_size: int, max_tokens_per_gpu: int | None) -> Division:
    """Micro-batches of `micro_batch_size` samples, or packed ones of up to `max_tokens_per_gpu` tokens per rank.

    Raises:
        InputError: a sample does not fit into `max_tokens_per_gpu`.
    """
    grid = process.sequence_grid()
    batch = batch.map(lambda tensor: tensor.to(process.device()))
    shape = (batch.tokens_BL.shape[0], batch.tokens_BL.shape[1])
    if max_tokens_per_gpu is None:
        return Division([padded_rows(rows, grid) for rows in batch.micro_batches(micro_batch_size)], None, shape)
    everyones = _gathered(batch)
    lengths = [grid.padded(length) for length in everyones.length_B.tolist()]
    plan = plan_micro_batches(lengths, process.dp_size(), grid.capacity(max_tokens_per_gpu))
    mine = plan.ranks[process.dp_rank()]
    packed = [_packed(everyones, one, grid) for one in mine]
    return Division(packed, [sample for one in mine for sample in one], shape)


def _packed(everyones: Batch, samples: Sequence[int], grid: SequenceGrid) -> MicroBatch:
    return packed_row(everyones.map(lambda tensor: tensor[list(samples)]), grid)


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
