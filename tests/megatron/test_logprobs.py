"""Chunked log-probs against log_softmax over whole logits: values, entropy, both gradients."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nemotron_rl.megatron.logprobs import token_logprobs


def inputs(tokens: int, vocabulary: int, seed: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    hidden_NH = torch.randn(tokens, 8, generator=draw).to(dtype).requires_grad_()
    weight_VH = torch.randn(vocabulary, 8, generator=draw).to(dtype).requires_grad_()
    return hidden_NH, weight_VH, torch.randint(vocabulary, (tokens,), generator=draw)


def oracle(hidden_NH: Tensor, weight_VH: Tensor, token_N: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    logprob_NV = torch.log_softmax((hidden_NH.double() @ weight_VH.double().T) / temperature, -1)
    chosen_N = logprob_NV.gather(1, token_N[:, None]).squeeze(1)
    return chosen_N, -(logprob_NV.exp() * logprob_NV).sum(-1), logprob_NV.argmax(-1) == token_N


@given(st.integers(0, 9), st.integers(2, 20), st.integers(0, 99), st.integers(1, 4), st.sampled_from([0.5, 1.0, 2.0]))
def test_values_and_gradients_are_those_of_log_softmax(
    tokens: int, vocabulary: int, seed: int, rows: int, temperature: float
) -> None:
    hidden_NH, weight_VH, token_N = inputs(tokens, vocabulary, seed, torch.float32)
    found = token_logprobs(
        hidden_NH, weight_VH, token_N, temperature=temperature, entropy=True, chunk_bytes=rows * 4 * vocabulary
    )
    logprob_N, entropy_N, is_top_N = oracle(hidden_NH, weight_VH, token_N, temperature)
    assert found.entropy_N is not None
    torch.testing.assert_close(found.logprob_N, logprob_N.float(), atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(found.entropy_N, entropy_N.float(), atol=2e-5, rtol=1e-5)
    assert torch.equal(found.is_top_N, is_top_N)

    slope_N = torch.randn(2, tokens, generator=torch.Generator().manual_seed(seed + 1))
    ours = (found.logprob_N * slope_N[0] + found.entropy_N * slope_N[1]).sum()
    theirs = (logprob_N * slope_N[0] + entropy_N * slope_N[1]).sum()
    grads = torch.autograd.grad(ours, [hidden_NH, weight_VH])
    expected = torch.autograd.grad(theirs, [hidden_NH, weight_VH])
    for got, want in zip(grads, expected, strict=True):
        torch.testing.assert_close(got, want, atol=5e-5, rtol=1e-4)


def test_the_size_of_a_chunk_changes_nothing() -> None:
    hidden_NH, weight_VH, token_N = inputs(50, 30, 0, torch.float32)
    results = []
    for chunk_bytes in (1, 120 * 7, 2**30):
        logprob_N = token_logprobs(hidden_NH, weight_VH, token_N, chunk_bytes=chunk_bytes).logprob_N
        results.append((logprob_N, *torch.autograd.grad(logprob_N.sum(), [hidden_NH, weight_VH])))
    for other in results[1:]:
        for got, want in zip(other, results[0], strict=True):
            torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


def test_without_entropy_the_gradient_is_the_same() -> None:
    hidden_NH, weight_VH, token_N = inputs(9, 30, 3, torch.float32)
    grads = [
        torch.autograd.grad(token_logprobs(hidden_NH, weight_VH, token_N, entropy=entropy).logprob_N.sum(), hidden_NH)
        for entropy in (False, True)
    ]
    torch.testing.assert_close(grads[0], grads[1])
    assert token_logprobs(hidden_NH, weight_VH, token_N).entropy_N is None


def test_large_logits_neither_overflow_nor_vanish() -> None:
    weight_VH = torch.tensor([[1e4], [-1e4], [0.0]])
    found = token_logprobs(torch.ones(3, 1), weight_VH, torch.tensor([0, 1, 2]), entropy=True)
    assert found.logprob_N.tolist() == [0.0, -2e4, -1e4]
    assert found.entropy_N is not None
    assert found.entropy_N.abs().max() < 1e-2
    assert found.is_top_N.tolist() == [True, False, False]


def test_bf16_weights_give_fp32_log_probs_and_gradients_of_their_own_type() -> None:
    hidden_NH, weight_VH, token_N = inputs(20, 30, 1, torch.bfloat16)
    logprob_N = token_logprobs(hidden_NH, weight_VH, token_N, chunk_bytes=4 * 30 * 7).logprob_N
    assert logprob_N.dtype == torch.float32
    torch.testing.assert_close(logprob_N, oracle(hidden_NH, weight_VH, token_N, 1.0)[0].float(), atol=0.1, rtol=0.02)
    for got, leaf in zip(
        torch.autograd.grad(logprob_N.sum(), [hidden_NH, weight_VH]), (hidden_NH, weight_VH), strict=True
    ):
        assert got.dtype == leaf.dtype


@pytest.mark.parametrize("frozen", ["hidden", "weight"])
def test_only_what_wants_a_gradient_gets_one(frozen: str) -> None:
    hidden_NH, weight_VH, token_N = inputs(5, 6, 2, torch.float32)
    (hidden_NH if frozen == "hidden" else weight_VH).requires_grad_(False)
    token_logprobs(hidden_NH, weight_VH, token_N).logprob_N.sum().backward()
    assert (hidden_NH.grad is None) == (frozen == "hidden")
    assert (weight_VH.grad is None) == (frozen == "weight")
