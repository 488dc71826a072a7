"""Log-probs of chosen tokens straight from hidden states: the logits of a whole batch never exist at once.

The output layer is applied to a chunk of tokens at a time, forward and again in the backward pass. The vocabulary may
be split over tensor-parallel ranks.

N tokens · H hidden size · V vocabulary, or this rank's part of it · C tokens of one chunk
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

CHUNK_BYTES = 64 * 2**20
"""Size of one chunk's fp32 logits; up to three times as much is in use at once."""


@dataclass(frozen=True)
class TokenLogprobs:
    """What is known about each of N tokens, fp32, equal on all tensor-parallel ranks."""

    logprob_N: Tensor
    """log p of the token, in nats."""
    entropy_N: Tensor | None
    """Entropy of the distribution that it was drawn from, in nats; None when not asked for."""
    is_top_N: Tensor
    """Whether the token is the most likely one. No gradient."""


def token_logprobs(
    hidden_NH: Tensor,
    weight_VH: Tensor,
    token_N: Tensor,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
    tp_group: dist.ProcessGroup | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> TokenLogprobs:
    """log softmax(hidden @ weight.T / temperature) at `token_N`, in fp32 whatever the inputs' type.

    Gradients reach `hidden_NH` and `weight_VH` exactly. With a `tp_group`, rank r holds rows r V to (r + 1) V of the
    weight, `token_N` counts over the whole vocabulary, and each rank's gradient of `hidden_NH` is its own vocabulary's
    part: whoever made `hidden_NH` sums them, as megatron's mappings into a tensor-parallel region do.
    """
    logprob_N, entropy_N, is_top_N = _TokenLogprobs.apply(  # type: ignore[no-untyped-call]
        hidden_NH, weight_VH, token_N, temperature, entropy, tp_group, chunk_bytes
    )
    return TokenLogprobs(logprob_N, entropy_N if entropy else None, is_top_N)


class _TokenLogprobs(torch.autograd.Function):
    """Keeps inputs and one number per token (two with entropy) for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_NH: Tensor,
        weight_VH: Tensor,
        token_N: Tensor,
        temperature: float,
        entropy: bool,
        tp_group: dist.ProcessGroup | None,
        chunk_bytes: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        local_N, is_local_N = _local_tokens(token_N, len(weight_VH), tp_group)
        chunks = list(_chunks(len(token_N), len(weight_VH), chunk_bytes))
        # Of this rank's vocabulary: largest logit, sum of exp(logit - largest), the token's logit or 0, and the sum
        # of exp(logit - largest) * logit, which the entropy needs.
        largest_N, total_N, chosen_N, weighted_N = hidden_NH.new_zeros(4, len(token_N), dtype=torch.float32)
        for rows in chunks:
            logits_CV = _logits(hidden_NH[rows], weight_VH, temperature)
            chosen_N[rows] = logits_CV.gather(1, local_N[rows, None]).squeeze(1) * is_local_N[rows]
            largest_N[rows] = logits_CV.amax(1)
            exp_CV = logits_CV.sub(largest_N[rows, None]) if entropy else logits_CV.sub_(largest_N[rows, None])
            total_N[rows] = exp_CV.exp_().sum(1)
            if entropy:
                weighted_N[rows] = torch.einsum("cv,cv->c", exp_CV, logits_CV)
            del logits_CV, exp_CV  # before those of the next chunk are made
        largest_N, total_N, chosen_N, weighted_N = _over_vocabulary(largest_N, total_N, chosen_N, weighted_N, tp_group)
        lse_N = largest_N + total_N.log()
        entropy_N = lse_N - weighted_N / total_N if entropy else torch.zeros_like(lse_N)
        ctx.save_for_backward(hidden_NH, weight_VH, local_N, is_local_N, lse_N, entropy_N)
        ctx.temperature, ctx.chunks, ctx.entropy = temperature, chunks, entropy
        is_top_N = chosen_N >= largest_N
        ctx.mark_non_differentiable(is_top_N)
        return chosen_N - lse_N, entropy_N, is_top_N

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """d log p(y) / d z = onehot(y) - p and d entropy / d z = -p (log p + entropy), with z the scaled logits."""
        grad_logprob_N, grad_entropy_N, _ = grads
        hidden_NH, weight_VH, local_N, is_local_N, lse_N, entropy_N = ctx.saved_tensors
        wants_hidden, wants_weight = ctx.needs_input_grad[:2]
        grad_hidden_NH = torch.empty_like(hidden_NH) if wants_hidden else None
        grad_weight_VH = torch.zeros_like(weight_VH, dtype=torch.float32) if wants_weight else None
        for rows in ctx.chunks:
            logprob_CV = _logits(hidden_NH[rows], weight_VH, ctx.temperature).sub_(lse_N[rows, None])
            grad_CV = torch.exp(logprob_CV)
            if ctx.entropy:
                slope_CV = logprob_CV.add_(entropy_N[rows, None]).mul_(grad_entropy_N[rows, None])
                grad_CV *= slope_CV.add_(grad_logprob_N[rows, None]).neg_()
            else:
                grad_CV *= -grad_logprob_N[rows, None]
            of_token_C1 = (grad_logprob_N[rows] * is_local_N[rows])[:, None]
            grad_CV.scatter_add_(1, local_N[rows, None], of_token_C1).div_(ctx.temperature)
            if grad_hidden_NH is not None:
                grad_hidden_NH[rows] = grad_CV.to(weight_VH.dtype) @ weight_VH
            if grad_weight_VH is not None:
                grad_weight_VH.addmm_(grad_CV.T, hidden_NH[rows].float())
            del logprob_CV, grad_CV
        grad_weight = grad_weight_VH.to(weight_VH.dtype) if grad_weight_VH is not None else None
        return grad_hidden_NH, grad_weight, None, None, None, None, None


def _logits(hidden_CH: Tensor, weight_VH: Tensor, temperature: float) -> Tensor:
    """The product is in the weight's type, as in the engine; everything after it in fp32."""
    return (hidden_CH.to(weight_VH.dtype) @ weight_VH.T).float().div_(temperature)


def _chunks(tokens: int, vocabulary: int, chunk_bytes: int) -> Iterator[slice]:
    size = max(1, chunk_bytes // (4 * vocabulary))
    for first in range(0, tokens, size):
        yield slice(first, min(first + size, tokens))


def _local_tokens(token_N: Tensor, vocabulary: int, tp_group: dist.ProcessGroup | None) -> tuple[Tensor, Tensor]:
    """Places of the tokens in this rank's part of the vocabulary, 0 for those elsewhere; and which are here."""
    first = dist.get_rank(tp_group) * vocabulary if tp_group is not None else 0
    is_local_N = (token_N >= first) & (token_N < first + vocabulary)
    return torch.where(is_local_N, token_N - first, 0), is_local_N


def _over_vocabulary(
    largest_N: Tensor, total_N: Tensor, chosen_N: Tensor, weighted_N: Tensor, tp_group: dist.ProcessGroup | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same sums over the whole vocabulary, in two collectives."""
    if tp_group is None or tp_group.size() == 1:
        return largest_N, total_N, chosen_N, weighted_N
    overall_N = largest_N.clone()
    dist.all_reduce(overall_N, dist.ReduceOp.MAX, group=tp_group)
    rescale_N = torch.exp(largest_N - overall_N)
    sums_3N = torch.stack([total_N * rescale_N, chosen_N, weighted_N * rescale_N])
    dist.all_reduce(sums_3N, group=tp_group)
    total_N, chosen_N, weighted_N = sums_3N
    return overall_N, total_N, chosen_N, weighted_N
