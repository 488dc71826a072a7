"""Runs micro-batches through megatron's schedules, forward only or with gradients, with or without the MTP head.

B samples · L tokens · V this rank's part of the vocabulary
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import torch
from megatron.core.pipeline_parallel import get_forward_backward_func
from torch import Tensor

from nemotron_rl.megatron import process
from nemotron_rl.megatron.model import MegatronModel
from nemotron_rl.rl.batch import Batch

LossFunction = Callable[[Batch, Tensor], tuple[Tensor, Tensor, dict[str, Tensor]]]
"""(micro-batch, logits_BLV) -> summed loss, int64 count of tokens that divides all gradients, sums to report."""


def forward(
    model: MegatronModel, micro_batches: Sequence[Batch], read: Callable[[Batch, Tensor], Tensor]
) -> list[Tensor]:
    """`read(micro_batch, logits_BLV)` of each micro-batch; an empty list but on the last pipeline stage. No MTP."""

    def collect(batch: Batch, logits_BLV: Tensor, non_loss_data: bool = True) -> Tensor:
        return read(batch, logits_BLV)

    with torch.no_grad(), _eval_mode(model), _without_mtp(model):
        collected: list[Tensor] = _run(model, micro_batches, collect, forward_only=True)
    return collected


def forward_backward(
    model: MegatronModel, micro_batches: Sequence[Batch], loss: LossFunction, with_mtp: bool
) -> list[dict[str, Tensor]]:
    """Accumulates gradients and reduces them over ranks; what `loss` reported, on the last pipeline stage."""
    with contextlib.nullcontext() if with_mtp else _without_mtp(model):
        reported: list[dict[str, Tensor]] = _run(model, micro_batches, loss, forward_only=False)
    return reported


def _run(model: MegatronModel, micro_batches: Sequence[Batch], loss: Callable[..., Any], forward_only: bool) -> Any:
    return get_forward_backward_func()(
        forward_step_func=partial(_forward_step, loss),
        data_iterator=iter(micro_batches),
        model=list(model.chunks),
        num_microbatches=len(micro_batches),
        seq_length=micro_batches[0].tokens_BL.shape[1],
        micro_batch_size=len(micro_batches[0].tokens_BL),
        forward_only=forward_only,
        collect_non_loss_data=forward_only,
    )


def _forward_step(loss: Callable[..., Any], data: Iterator[Batch], model: Any) -> tuple[Tensor, Callable[..., Any]]:
    batch = _on_device(next(data))
    tokens_BL = batch.tokens_BL
    position_BL = torch.arange(tokens_BL.shape[1], device=tokens_BL.device).expand_as(tokens_BL)
    logits_BLV = model(tokens_BL, position_BL, None, loss_mask=batch.mask_BL)
    return logits_BLV, partial(loss, batch)


def _on_device(batch: Batch) -> Batch:
    device = process.device()
    return Batch(**{f.name: getattr(batch, f.name).to(device) for f in fields(batch)})


@contextlib.contextmanager
def _without_mtp(model: MegatronModel) -> Iterator[None]:
    """Skips the MTP head; the trunk's logits are bit for bit the same."""
    before = [(chunk, chunk.mtp_process) for chunk in map(_hybrid, model.unwrapped())]
    for chunk, _ in before:
        chunk.mtp_process = False
    try:
        yield
    finally:
        for chunk, value in before:
            chunk.mtp_process = value


@contextlib.contextmanager
def _eval_mode(model: MegatronModel) -> Iterator[None]:
    for chunk in model.chunks:
        chunk.eval()
    try:
        yield
    finally:
        for chunk in model.chunks:
            chunk.train()


def _hybrid(chunk: Any) -> Any:
    """The HybridModel itself, below a mixed-precision wrapper."""
    return getattr(chunk, "module", chunk)
