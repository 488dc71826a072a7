"""Runs micro-batches through megatron's schedules, forward only or with gradients, with or without the MTP head.

s, R, H: this rank's tokens of a row, rows of the model's input, hidden size
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from megatron.core.pipeline_parallel import get_forward_backward_func
from torch import Tensor

from nemotron_rl.megatron.micro_batch import MicroBatch
from nemotron_rl.megatron.model import MegatronModel
from nemotron_rl.megatron.mtp_loss import MtpContext, during
from nemotron_rl.megatron.routing_replay import RoutingReplay

LossFunction = Callable[[MicroBatch, Tensor], tuple[Tensor, Tensor, dict[str, Tensor]]]
"""(micro-batch, hidden_sRH) -> summed loss, int64 count of tokens that divides all gradients, sums to report.

Both the loss and the count are summed over data- and context-parallel ranks.
"""


def forward(
    model: MegatronModel, micro_batches: Sequence[MicroBatch], read: Callable[[MicroBatch, Tensor], Tensor]
) -> list[Tensor]:
    """`read(micro_batch, hidden_sRH)` of each micro-batch; an empty list but on the last pipeline stage. No MTP."""

    def collect(micro_batch: MicroBatch, hidden_RsH: Tensor, non_loss_data: bool = True) -> Tensor:
        return read(micro_batch, hidden_RsH.transpose(0, 1))

    model.routing.start_pass(backward=False)
    with torch.no_grad(), _eval_mode(model), _without_mtp(model):
        collected: list[Tensor] = _run(model, micro_batches, collect, forward_only=True)
    return collected


def forward_backward(
    model: MegatronModel, micro_batches: Sequence[MicroBatch], loss: LossFunction, mtp: MtpContext | None
) -> list[dict[str, Tensor]]:
    """Accumulates gradients and reduces them over ranks; what `loss` reported, on the last pipeline stage."""

    def summed(micro_batch: MicroBatch, hidden_RsH: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        return loss(micro_batch, hidden_RsH.transpose(0, 1))

    model.routing.start_pass(backward=True)
    with _without_mtp(model) if mtp is None else during(mtp, model.config):
        reported: list[dict[str, Tensor]] = _run(model, micro_batches, summed, forward_only=False, mtp=mtp)
    return reported


def _run(
    model: MegatronModel,
    micro_batches: Sequence[MicroBatch],
    loss: Callable[..., Any],
    forward_only: bool,
    mtp: MtpContext | None = None,
) -> Any:
    rows, length = micro_batches[0].tokens_Rs.shape
    return get_forward_backward_func()(
        forward_step_func=partial(_forward_step, loss, mtp, model.routing),
        data_iterator=iter(micro_batches),
        model=list(model.chunks),
        num_microbatches=len(micro_batches),
        seq_length=length,  # only of the first: pipeline stages tell each other their shapes
        micro_batch_size=rows,
        forward_only=forward_only,
        collect_non_loss_data=forward_only,
    )


def _forward_step(
    loss: Callable[..., Any],
    mtp: MtpContext | None,
    routing: RoutingReplay,
    data: Iterator[MicroBatch],
    model: Any,
) -> tuple[Tensor, Callable[..., Any]]:
    micro_batch = next(data)
    if mtp is not None:
        mtp.micro_batch = micro_batch
    routing.start(micro_batch)
    tokens_Rs = micro_batch.tokens_Rs
    # Nemotron-H has no position embeddings; megatron asks for positions all the same.
    hidden_RsH = model(tokens_Rs, torch.zeros_like(tokens_Rs), None, packed_seq_params=micro_batch.packed)
    return hidden_RsH, partial(loss, micro_batch)


@contextlib.contextmanager
def _without_mtp(model: MegatronModel) -> Iterator[None]:
    """Skips the MTP head; the trunk's output is bit for bit the same."""
    before = [(chunk, chunk.mtp_process) for chunk in model.hybrid()]
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
