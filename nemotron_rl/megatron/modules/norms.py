"""RMS norms with the parameter names of Transformer Engine and mamba-ssm."""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor, nn

from nemotron_rl.megatron.modules.sharding import sharded_parameters
from nemotron_rl.ops.norm import gated_rms_norm, rms_norm


class RMSNorm(nn.Module):
    """In the place of TENorm: parameter `weight` [hidden_size]."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size, dtype=config.params_dtype))
        # Megatron sums the gradients of so marked parameters over TP ranks, which each see a part of the sequence.
        self.weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """The normalized x, same shape."""
        return rms_norm(x, self.weight, self.eps)


class GatedRMSNorm(nn.Module):
    """In the place of mamba-ssm's gated norm: each group of channels of x * silu(z) is normalized by itself."""

    tp_group: torch.distributed.ProcessGroup  # set by MambaMixer after construction

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-5,
        group_size: int | None = None,
        norm_before_gate: bool = False,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if norm_before_gate:
            raise NotImplementedError("Nemotron-H gates before the norm; norm_before_gate=True is another model")
        self.weight = nn.Parameter(torch.ones(hidden_size, device=device, dtype=dtype))
        self.eps, self.group_size = eps, group_size or hidden_size

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """norm(x * silu(z)) * weight; x and z are [..., hidden_size]."""
        return gated_rms_norm(x, z, self.weight, self.eps, self.group_size)

    def sharded_state_dict(
        self, prefix: str = "", sharded_offsets: tuple[Any, ...] = (), metadata: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """The weight, split over TP along its only dimension."""
        split = {"weight": 0}
        return sharded_parameters(self, prefix, sharded_offsets, metadata, split=split, tp_group=self.tp_group)
