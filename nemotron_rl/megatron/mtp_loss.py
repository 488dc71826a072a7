"""The cross-entropy of the multi-token-prediction head, normalized over all ranks and micro-batches.

megatron-core 0.19.2 multiplies the sum over tokens by (tokens of the main loss) / (tokens of the MTP loss), both
counted in this micro-batch on this rank, so that the gradient depends on how tokens are cut into micro-batches, data-
and context-parallel ranks. Here the counts are global and given by the trainer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler, roll_tensor
from torch import Tensor

CONTEXT = "nemotron_rl_mtp"
"""Attribute of the model's config that holds the MtpContext of the current update."""


@dataclass
class MtpContext:
    """What one update tells the MTP loss, and what it hears back."""

    scale_per_depth: list[float]
    """Factor on the summed loss of each depth, loss weight and normalization included; empty trains no head."""
    loss_sum_per_depth: list[Tensor] = field(default_factory=list)
    """Summed cross-entropy of this rank's tokens so far, in nats."""

    def record(self, depth: int, loss_sum: Tensor) -> None:
        """Add one micro-batch's sum."""
        while len(self.loss_sum_per_depth) <= depth:
            self.loss_sum_per_depth.append(torch.zeros_like(loss_sum))
        self.loss_sum_per_depth[depth] += loss_sum


def mtp_targets(mask_BL: Tensor, depth: int) -> Tensor:
    """Positions i that the head of `depth` (from 0) predicts: their target i + depth + 2 is in the mask; [B, L]."""
    shift = depth + 2
    targets_BL = torch.zeros_like(mask_BL)
    targets_BL[:, :-shift] = mask_BL[:, shift:]
    return targets_BL


def process_mtp_loss(
    *,
    hidden_states: Tensor,
    labels: Tensor | None,
    loss_mask: Tensor | None,
    output_layer: Callable[..., tuple[Tensor, Any]],
    output_weight: Tensor | None,
    runtime_gather_output: bool | None,
    compute_language_model_loss: Callable[[Tensor, Tensor], Tensor],
    config: Any,
    cp_group: torch.distributed.ProcessGroup,
    packed_seq_params: Any,
    input_ids: Tensor | None,
    scale_logits_fn: Callable[[Tensor], Tensor] | None = None,
    **_: Any,
) -> Tensor:
    """In the place of megatron's function of that name; the arguments are its own.

    `labels` must be None: the targets are `input_ids` shifted by depth + 2, and `loss_mask` [B, L] is aligned with the
    tokens, 1 where a token may be a target. Returns the trunk's hidden states, to which the loss's gradient is tied.

    Raises:
        ValueError: without input_ids, loss_mask and an MtpContext on the config, or with labels.
    """
    context: MtpContext | None = getattr(config, CONTEXT, None)
    if context is None or labels is not None or input_ids is None or loss_mask is None:
        raise ValueError("the MTP loss needs input_ids, a token-aligned loss_mask and an MtpContext, and no labels")
    hidden_states, *per_depth = hidden_states.chunk(1 + config.mtp_num_layers)
    weight = output_layer.weight if output_weight is None else output_weight  # type: ignore[attr-defined]
    weight = weight.detach() if config.mtp_detach_heads else weight

    def roll(t: Tensor) -> Tensor:
        rolled, _ = roll_tensor(t, shifts=-1, dims=-1, cp_group=cp_group, packed_seq_params=packed_seq_params)
        return rolled

    target, mask = roll(input_ids), roll(loss_mask)
    for depth, (hidden, scale) in enumerate(zip(per_depth, context.scale_per_depth, strict=True)):
        logits, _ = output_layer(hidden, weight=weight, runtime_gather_output=runtime_gather_output)
        logits = logits if scale_logits_fn is None else scale_logits_fn(logits)
        target, mask = roll(target), roll(mask)
        loss = mask * compute_language_model_loss(target, logits)
        context.record(depth, loss.detach().sum())
        hidden_states = MTPLossAutoScaler.apply(hidden_states, scale * loss)
    return hidden_states
