"""Draws the next token from logits: temperature, top-k, top-p, one seeded stream of uniforms per sequence.

B sequences · V vocabulary
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nemotron_rl.config.rollout import SamplingSettings


def uniforms(seeds: Sequence[int], count: int) -> Tensor:
    """Uniform numbers in [0, 1), float64 [B, count]; a row depends on its seed alone."""
    rows = [torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    return torch.stack(rows)


def sample(logits_BV: Tensor, uniform_B: Tensor, settings: SamplingSettings) -> tuple[Tensor, Tensor]:
    """Token ids [B] and their log-probs [B] in nats, fp32.

    Log-probs are of softmax(logits / temperature), of softmax(logits) when greedy, before top-k and top-p: what the
    trainer computes for the same tokens.
    """
    logits_BV = logits_BV.float()
    if settings.temperature > 0:
        logits_BV = logits_BV / settings.temperature
    logprob_BV = logits_BV.log_softmax(-1)
    greedy = settings.temperature == 0
    token_B = logprob_BV.argmax(-1) if greedy else _draw(logprob_BV, uniform_B, settings)
    return token_B, logprob_BV.gather(-1, token_B[:, None]).squeeze(-1)


def _draw(logprob_BV: Tensor, uniform_B: Tensor, settings: SamplingSettings) -> Tensor:
    """By the inverse of the cumulative distribution over tokens in falling order of probability."""
    sorted_BV, token_BV = logprob_BV.double().exp().sort(dim=-1, descending=True, stable=True)
    if settings.top_k:
        sorted_BV[:, settings.top_k :] = 0.0
    if settings.top_p < 1:
        total_B1 = sorted_BV.sum(-1, keepdim=True)
        before_BV = sorted_BV.cumsum(-1) - sorted_BV
        sorted_BV[before_BV >= settings.top_p * total_B1] = 0.0  # the most likely token always stays
    cumulative_BV = sorted_BV.cumsum(-1)
    threshold_B1 = uniform_B[:, None] * cumulative_BV[:, -1:]
    place_B1 = torch.searchsorted(cumulative_BV, threshold_B1, right=True)
    last_B1 = (sorted_BV > 0).sum(-1, keepdim=True) - 1  # rounding must not lead past the last token that is left
    return token_BV.gather(-1, torch.minimum(place_B1, last_B1)).squeeze(-1)
