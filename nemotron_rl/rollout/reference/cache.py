"""What a layer remembers of the tokens it has seen.

B sequences · L positions · H heads · P head dim · N state · W channels of the convolution · K convolution width
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nemotron_rl.rollout.reference.shape import NemotronHShape


@dataclass
class MambaCache:
    """The last K - 1 inputs of the convolution and the SSM state."""

    conv_BWK: Tensor
    state_BHPN: Tensor

    def select(self, rows: Tensor) -> None:
        """Keep these sequences only."""
        self.conv_BWK, self.state_BHPN = self.conv_BWK[rows], self.state_BHPN[rows]


@dataclass
class AttentionCache:
    """Keys and values; positions from `Cache.length` on are unused."""

    key_BHLP: Tensor
    value_BHLP: Tensor

    def select(self, rows: Tensor) -> None:
        """Keep these sequences only."""
        self.key_BHLP, self.value_BHLP = self.key_BHLP[rows], self.value_BHLP[rows]


class Cache:
    """The caches of all layers of one batch. Sequences are padded on the left, so that all end at `length`."""

    def __init__(self, shape: NemotronHShape, valid_BL: Tensor, capacity: int) -> None:
        """`valid_BL` is false at padding; `capacity` is the largest number of positions, padding included."""
        batch, prompt = valid_BL.shape
        self.length = 0
        self.valid_BL = torch.ones(batch, capacity, dtype=torch.bool)
        self.valid_BL[:, :prompt] = valid_BL
        self.experts: list[Tensor] = []
        """Experts of the tokens of the last forward pass in each MoE layer, [B, L, experts per token]."""
        self.layers: list[MambaCache | AttentionCache | None] = [
            _layer_cache(shape, kind, batch, capacity) for kind in shape.pattern
        ]

    def select(self, rows: Tensor) -> None:
        """Keep these sequences only; int64 row indices."""
        self.valid_BL = self.valid_BL[rows]
        for layer in self.layers:
            if layer is not None:
                layer.select(rows)


def _layer_cache(shape: NemotronHShape, kind: str, batch: int, capacity: int) -> MambaCache | AttentionCache | None:
    if kind == "M":
        channels = shape.mamba_width + 2 * shape.group_width
        state = torch.zeros(batch, shape.mamba_num_heads, shape.mamba_head_dim, shape.ssm_state_size)
        return MambaCache(torch.zeros(batch, channels, shape.conv_kernel - 1), state)
    if kind == "*":
        size = (batch, shape.num_key_value_heads, capacity, shape.head_dim)
        return AttentionCache(torch.zeros(size), torch.zeros(size))
    return None
