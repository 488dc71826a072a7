"""Linear layers with Transformer Engine's parameter names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.tensor_parallel.layers import ColumnParallelLinear
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor, nn
from torch.nn import functional as F

from nemotron_rl.megatron.modules.sharding import sharded_parameters
from nemotron_rl.ops.norm import rms_norm


class LocalLayerNormColumnParallelLinear(ColumnParallelLinear):
    """An RMS norm and a column-parallel linear: parameters `layer_norm_weight` [in] and `weight` [out / tp, in].

    The class name must contain "LayerNormColumnParallelLinear": by that megatron-bridge knows that
    `layer_norm_weight` is not split over TP.
    """

    def __init__(self, input_size: int, output_size: int, *, config: TransformerConfig, **kwargs: Any) -> None:
        super().__init__(input_size, output_size, config=config, **kwargs)
        self.layer_norm_weight = nn.Parameter(torch.ones(input_size, dtype=config.params_dtype))
        self.layer_norm_weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
        self.eps = config.layernorm_epsilon

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        """linear(norm(x)) and no bias."""
        output: tuple[Tensor, Tensor | None] = super().forward(
            rms_norm(x, self.layer_norm_weight, self.eps), *args, **kwargs
        )
        return output


class DuplicatedLinear(nn.Module):
    """A linear that every TP rank holds whole; MoELayer uses it for the latent projections. No bias."""

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        parallel_mode: str,
        config: TransformerConfig,
        init_method: Callable[[Tensor], Any],
        bias: bool,
        **_: Any,
    ) -> None:
        super().__init__()
        if parallel_mode != "duplicated" or bias:
            raise NotImplementedError(f"only a duplicated linear without bias; got {parallel_mode=}, {bias=}")
        self.weight = nn.Parameter(torch.empty(output_size, input_size, dtype=config.params_dtype))
        init_method(self.weight)
        self.weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        """x @ weight.T and no bias."""
        return F.linear(x, self.weight), None

    def sharded_state_dict(
        self, prefix: str = "", sharded_offsets: tuple[Any, ...] = (), metadata: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """The weight, replicated over TP."""
        group = parallel_state.get_tensor_model_parallel_group()
        return sharded_parameters(self, prefix, sharded_offsets, metadata, split={}, tp_group=group)
