"""Grouped products against a loop over experts."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.megatron.modules.experts import grouped_linear


def by_loop(x: torch.Tensor, counts: list[int], weights: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([part @ weight.T for part, weight in zip(x.split(counts), weights, strict=True)])


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=5).filter(any), st.sampled_from([8, 16]), st.sampled_from([8, 24])
)
def test_values_and_gradients_are_those_of_a_loop(counts: list[int], width: int, out: int) -> None:
    generator = torch.Generator().manual_seed(sum(counts))
    x = torch.randn(sum(counts), width, generator=generator).requires_grad_()
    weights = [torch.randn(out, width, generator=generator).requires_grad_() for _ in counts]
    direction = torch.randn(sum(counts), out, generator=generator)
    seen = []
    for product in (grouped_linear(x, torch.tensor(counts).cumsum(0).int(), weights), by_loop(x, counts, weights)):
        seen.append([product, *torch.autograd.grad((product * direction).sum(), [x, *weights])])
    for ours, slow in zip(*seen, strict=True):
        torch.testing.assert_close(ours, slow)
