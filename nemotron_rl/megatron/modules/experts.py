"""A layer's routed experts as two grouped matrix products instead of two small ones per expert.

T tokens, sorted by expert · E local experts · K, N features in and out
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from megatron.core.models.backends import LocalSpecProvider
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.mlp import MLPSubmodules
from megatron.core.transformer.moe.experts import SequentialMLP
from torch import Tensor
from torch.nn import functional as F


class GroupedExperts(SequentialMLP):
    """Parameters, their names and their checkpoint are the parent's: one matrix per expert, as the bridge expects them.

    Megatron's own grouped experts need Transformer Engine. Split experts (ETP > 1) take the parent's way.
    """

    def forward(self, hidden_TK: Tensor, tokens_per_expert: Tensor, probs_T: Tensor) -> tuple[Tensor, Tensor | None]:
        """The experts' outputs [T, K], each scaled by its token's probability, and no bias."""
        if self.tp_group.size() > 1 or self.config.moe_apply_probs_on_input or not len(hidden_TK):
            output: tuple[Tensor, Tensor | None] = super().forward(hidden_TK, tokens_per_expert, probs_T)
            return output
        ends_E = tokens_per_expert.cumsum(0).to(hidden_TK.device, torch.int32)
        up_TN = grouped_linear(hidden_TK, ends_E, [expert.linear_fc1.weight for expert in self.local_experts])
        active_TN = self.config.activation_func(up_TN)
        scaled_TN = (active_TN * probs_T.unsqueeze(-1)).to(active_TN.dtype)
        return grouped_linear(scaled_TN, ends_E, [expert.linear_fc2.weight for expert in self.local_experts]), None


class GroupedSpecProvider(LocalSpecProvider):
    """Megatron's local modules, and grouped experts."""

    def grouped_mlp_modules(self, moe_use_grouped_gemm: bool) -> Any:
        """What builds a layer's experts."""
        linears = MLPSubmodules(linear_fc1=ColumnParallelLinear, linear_fc2=RowParallelLinear)
        return partial(GroupedExperts, submodules=linears)


def grouped_linear(x_TK: Tensor, ends_E: Tensor, weights: list[Tensor]) -> Tensor:
    """x @ weights[e].T [T, N] for the tokens of expert e, which end before token `ends_E[e]` (int32)."""
    result: Tensor = _GroupedLinear.apply(x_TK, ends_E, *weights)  # type: ignore[no-untyped-call]
    return result


class _GroupedLinear(torch.autograd.Function):
    """Stacks the weights for each product, and not for as long as the backward pass may want them."""

    @staticmethod
    def forward(ctx: Any, x_TK: Tensor, ends_E: Tensor, *weights: Tensor) -> Tensor:
        ctx.save_for_backward(x_TK, ends_E, *weights)
        return F.grouped_mm(x_TK, torch.stack(weights).transpose(1, 2), offs=ends_E)

    @staticmethod
    def backward(ctx: Any, grad_TN: Tensor) -> tuple[Tensor | None, ...]:
        x_TK, ends_E, *weights = ctx.saved_tensors
        grad_TN = grad_TN.contiguous()
        grad_TK = F.grouped_mm(grad_TN, torch.stack(weights), offs=ends_E) if ctx.needs_input_grad[0] else None
        grad_ENK = F.grouped_mm(grad_TN.transpose(0, 1), x_TK.contiguous(), offs=ends_E)
        return grad_TK, None, *grad_ENK.unbind(0)
