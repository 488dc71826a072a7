"""The short convolution against the sum that defines it, and against torch's own."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from nemotron_rl.ops.conv import causal_conv


def inputs(length: int, taps: int, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(length, 2, 3), (3, taps), (3,)]
    return [torch.randn(shape, generator=generator, requires_grad=True) for shape in shapes]


def definition(x_LBD: Tensor, weight_DW: Tensor, bias_D: Tensor) -> Tensor:
    """Token by token, in float64."""
    x, weight, taps = x_LBD.double(), weight_DW.double(), weight_DW.shape[1]
    rows = []
    for t in range(len(x)):
        seen = [weight[:, w] * x[t - taps + 1 + w] for w in range(taps) if t - taps + 1 + w >= 0]
        rows.append(torch.stack(seen).sum(0) + bias_D.double())
    return torch.stack(rows)


@settings(deadline=None, max_examples=25)
@given(length=st.integers(1, 9), taps=st.integers(1, 5), seed=st.integers(0, 99))
def test_values_and_gradients_are_those_of_the_definition(length: int, taps: int, seed: int) -> None:
    args = inputs(length, taps, seed)
    y, expected = causal_conv(*args), definition(*args)
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)
    pull = torch.randn(y.shape, generator=torch.Generator().manual_seed(seed))
    grads = torch.autograd.grad((y * pull).sum(), args)
    wanted = torch.autograd.grad((expected * pull).sum(), args)
    for got, want in zip(grads, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_without_a_bias_none_is_added() -> None:
    x, weight, _ = inputs(5, 4)
    assert torch.equal(causal_conv(x, weight, None), causal_conv(x, weight, torch.zeros(3)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_torchs_convolution(dtype: torch.dtype) -> None:
    x, weight, bias = (t.detach().to(dtype).requires_grad_() for t in inputs(9, 4))
    y = causal_conv(x, weight, bias)
    padded_BDL = F.pad(x.permute(1, 2, 0), (3, 0))
    expected = F.conv1d(padded_BDL, weight[:, None], bias, groups=3).permute(2, 0, 1)
    assert y.dtype == dtype
    torch.testing.assert_close(y, expected)
    for got, want in zip(
        torch.autograd.grad(y.float().sum(), (x, weight, bias)),
        torch.autograd.grad(expected.float().sum(), (x, weight, bias)),
        strict=True,
    ):
        torch.testing.assert_close(got, want)
