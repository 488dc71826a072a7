"""The scan against the recurrence that defines it."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nemotron_rl.ops.ssd import ssd_scan, ssd_step
from tests.oracles.ssd import recurrence


def inputs(length: int, seed: int = 0, batch: int = 2, heads: int = 4, groups: int = 2) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    dt = torch.nn.functional.softplus(normal(batch, length, heads))
    A = -torch.exp(normal(heads))
    return [
        normal(batch, length, heads, 3),
        dt,
        A,
        normal(batch, length, groups, 5),
        normal(batch, length, groups, 5),
        normal(heads),
    ]


@settings(deadline=None, max_examples=25)
@given(length=st.integers(1, 23), chunk=st.integers(1, 9), seed=st.integers(0, 99))
def test_the_scan_is_the_recurrence_for_any_length_and_chunk(length: int, chunk: int, seed: int) -> None:
    args = inputs(length, seed)
    y, state = ssd_scan(*args, chunk)
    expected_y, expected_state = recurrence(*args)
    torch.testing.assert_close(y.double(), expected_y, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(state.double(), expected_state, rtol=1e-4, atol=1e-5)


def test_steps_after_a_scan_continue_it() -> None:
    x, dt, A, B, C, D = inputs(17)
    whole, _ = ssd_scan(x, dt, A, B, C, D, 4)
    _, state = ssd_scan(x[:, :9], dt[:, :9], A, B[:, :9], C[:, :9], D, 4)
    for t in range(9, 17):
        y, state = ssd_step(state, x[:, t], dt[:, t], A, B[:, t], C[:, t], D)
        torch.testing.assert_close(y, whole[:, t], rtol=1e-5, atol=1e-5)


def test_a_token_with_dt_zero_leaves_the_state_as_it_is() -> None:
    x, dt, A, B, C, D = inputs(6)
    dt[:, :3] = 0
    _, padded = ssd_scan(x, dt, A, B, C, D, 4)
    _, alone = ssd_scan(x[:, 3:], dt[:, 3:], A, B[:, 3:], C[:, 3:], D, 4)
    torch.testing.assert_close(padded, alone, rtol=1e-6, atol=1e-6)


def test_its_gradient_is_that_of_the_definition() -> None:
    args = [t.double().requires_grad_() for t in inputs(5, batch=1)]
    x, dt, A, B, C, D = args

    def scan(*tensors: Tensor) -> Tensor:
        y, state = ssd_scan(*(t.float() for t in tensors), 2)
        return y.double().sum() + (state.double() ** 2).sum()

    grads = torch.autograd.grad(scan(*args), args)
    state = torch.zeros(1, 4, 3, 5, dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    for t in range(5):  # the recurrence in tensors, differentiated by autograd
        B_t, C_t = (s[:, t].repeat_interleave(2, 1) for s in (B, C))
        state = (
            state * torch.exp(dt[:, t] * A)[..., None, None]
            + (dt[:, t][..., None] * x[:, t])[..., None] * B_t[:, :, None]
        )
        total = total + (state * C_t[:, :, None]).sum() + (x[:, t] * D[:, None]).sum()
    expected = torch.autograd.grad(total + (state**2).sum(), args)
    for got, want in zip(grads, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
