"""RMS norm."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / rms(x) * weight over the last dimension, the mean square in fp32; the result has x's dtype."""
    x_fp32 = x.float()
    return weight * (x_fp32 * torch.rsqrt(x_fp32.square().mean(-1, keepdim=True) + eps)).to(x.dtype)


def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float, group_size: int) -> Tensor:
    """norm(x * silu(gate)) * weight, each group of `group_size` channels of the last dimension by itself."""
    gated = (x.float() * F.silu(gate.float())).unflatten(-1, (-1, group_size))
    normed = gated * torch.rsqrt(gated.square().mean(-1, keepdim=True) + eps)
    return weight * normed.flatten(-2).to(x.dtype)
