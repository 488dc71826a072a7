"""The cross-entropy of the multi-token-prediction head, normalized over all ranks and micro-batches.

megatron-core 0.19.2 multiplies the sum over tokens by (tokens of the main loss) / (tokens of the MTP loss), both
counted in this micro-batch on this rank, so that the gradient depends on how tokens are cut into micro-batches, data-
and context-parallel ranks. Here the counts are global and given by the trainer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler
from torch import Tensor

from nemotron_rl.megatron.micro_batch import MicroBatch
from nemotron_rl.megatron.modules.output_layer import DeferredOutputLayer
from nemotron_rl.megatron.predictions import predicted
from nemotron_rl.rl.batch import ahead

_CONTEXT = "nemotron_rl_mtp"
"""Attribute of the model's config that holds the MtpContext of the current update."""


@dataclass
class MtpContext:
    """What one update tells the MTP loss, and what it hears back."""

    scale_per_depth: Sequence[float]
    """Factor on the summed loss of each depth, loss weight and normalization included."""
    micro_batch: MicroBatch | None = None
    """What the model is computing now."""
    sums: dict[str, Tensor] = field(default_factory=dict)
    """`loss0` and `accepted0` of the first depth, and so on: cross-entropy in nats and accepted tokens, summed over
    this rank's targets so far."""

    def record(self, depth: int, loss_N: Tensor, accepted_N: Tensor) -> None:
        """Add one micro-batch's targets."""
        for name, values_N in ((f"loss{depth}", loss_N.detach()), (f"accepted{depth}", accepted_N)):
            total = values_N.sum(dtype=torch.float64)
            self.sums[name] = self.sums.get(name, torch.zeros_like(total)) + total


@contextlib.contextmanager
def during(context: MtpContext, config: Any) -> Iterator[None]:
    """The model of this config computes its MTP loss as `context` says."""
    setattr(config, _CONTEXT, context)
    try:
        yield
    finally:
        delattr(config, _CONTEXT)


def mtp_targets(mask_BL: Tensor, depth: int) -> Tensor:
    """Positions i that the head of `depth` (from 0) predicts: their target i + depth + 2 is in the mask; [B, L]."""
    return ahead(mask_BL, depth + 2)


def process_mtp_loss(
    *,
    hidden_states: Tensor,
    labels: Tensor | None,
    output_layer: DeferredOutputLayer,
    config: Any,
    **_: Any,
) -> Tensor:
    """In the place of megatron's function of that name; the arguments are its own.

    `labels` must be None: the targets are the tokens of the context's micro-batch, depth + 2 later. Returns the trunk's
    hidden states, to which the loss's gradient is tied.

    Raises:
        ValueError: without an MtpContext on the config that knows the micro-batch, or with labels.
    """
    context: MtpContext | None = getattr(config, _CONTEXT, None)
    if context is None or context.micro_batch is None or labels is not None:
        raise ValueError("the MTP loss needs an MtpContext that knows the micro-batch, and no labels")
    hidden_states, *per_depth = hidden_states.chunk(1 + config.mtp_num_layers)
    weight = output_layer.weight.detach() if config.mtp_detach_heads else output_layer.weight
    for depth, (hidden, scale) in enumerate(zip(per_depth, context.scale_per_depth, strict=True)):
        found, _wanted = predicted(output_layer, hidden, context.micro_batch, depth + 2, weight=weight)
        context.record(depth, -found.logprob_N, found.is_top_N)
        hidden_states = MTPLossAutoScaler.apply(hidden_states, -scale * found.logprob_N)
    return hidden_states
