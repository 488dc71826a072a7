"""The state-space recurrence, one token, one head and one channel at a time."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def recurrence(
    x_BLHP: Tensor, dt_BLH: Tensor, A_H: Tensor, B_BLGN: Tensor, C_BLGN: Tensor, D_H: Tensor
) -> tuple[Tensor, Tensor]:
    """Outputs [B, L, H, P] and last states [B, H, P, N] in float64."""
    batch, length, heads, head_dim = x_BLHP.shape
    groups, state_dim = B_BLGN.shape[2:]
    y = torch.zeros(x_BLHP.shape, dtype=torch.float64)
    state = torch.zeros(batch, heads, head_dim, state_dim, dtype=torch.float64)
    for b in range(batch):
        for t in range(length):
            for h in range(heads):
                group = h // (heads // groups)
                dt = float(dt_BLH[b, t, h])
                decay = math.exp(dt * float(A_H[h]))
                for p in range(head_dim):
                    x = float(x_BLHP[b, t, h, p])
                    state[b, h, p] = decay * state[b, h, p] + dt * x * B_BLGN[b, t, group].double()
                    y[b, t, h, p] = state[b, h, p] @ C_BLGN[b, t, group].double() + float(D_H[h]) * x
    return y, state
