"""Mamba-2's short causal convolution, each channel by itself, along the first dimension.

Torch's own grouped convolution on CPU wants time last, and its backward pass costs more than all of the scan.

L tokens · B sequences · D channels · W taps
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


def causal_conv(x_LBD: Tensor, weight_DW: Tensor, bias_D: Tensor | None) -> Tensor:
    """y_t = bias + sum over w of weight[:, w] x_{t - W + 1 + w}, with zeros before the first token; x's shape and type.

    Summed in fp32 whatever the type.
    """
    result: Tensor = _CausalConv.apply(x_LBD, weight_DW, bias_D)  # type: ignore[no-untyped-call]
    return result


class _CausalConv(torch.autograd.Function):
    """One multiply-add of the whole sequence per tap, shifted against itself."""

    @staticmethod
    def forward(ctx: Any, x_LBD: Tensor, weight_DW: Tensor, bias_D: Tensor | None) -> Tensor:
        ctx.save_for_backward(x_LBD, weight_DW)
        ctx.bias_dtype = None if bias_D is None else bias_D.dtype
        x, taps_WD = x_LBD.float(), weight_DW.float().T.contiguous()
        y = x * taps_WD[-1]
        if bias_D is not None:
            y += bias_D.float()
        for tap, (earlier, later) in _shifts(x, y, len(taps_WD)):
            later.addcmul_(earlier, taps_WD[tap])
        return y.to(x_LBD.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x_LBD, weight_DW = ctx.saved_tensors
        x, grad, taps_WD = x_LBD.float(), grads[0].float(), weight_DW.float().T.contiguous()
        grad_x = grad * taps_WD[-1]
        grad_WD = torch.zeros_like(taps_WD)
        grad_WD[-1] = (grad * x).sum((0, 1))
        for tap, (grad_x_earlier, later) in _shifts(grad_x, grad, len(taps_WD)):
            grad_x_earlier.addcmul_(later, taps_WD[tap])
        for tap, (earlier, later) in _shifts(x, grad, len(taps_WD)):
            grad_WD[tap] = (earlier * later).sum((0, 1))
        grad_bias = None if ctx.bias_dtype is None else grad.sum((0, 1)).to(ctx.bias_dtype)
        return grad_x.to(x_LBD.dtype), grad_WD.T.to(weight_DW.dtype), grad_bias


def _shifts(before: Tensor, after: Tensor, taps: int) -> Iterator[tuple[int, tuple[Tensor, Tensor]]]:
    """Of each tap but the last: the tokens of `before` that it carries over, and those of `after` that they reach."""
    length = len(before)
    for shift in range(1, min(taps, length)):
        yield taps - 1 - shift, (before[: length - shift], after[shift:])
