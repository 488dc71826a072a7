"""GRPO with loops over prompts, samples and tokens, as the papers write it."""

from __future__ import annotations

import math
from collections.abc import Sequence


def advantages(rewards: Sequence[float], groups: Sequence[int], normalize_std: bool = True) -> list[float]:
    out = []
    for reward, group in zip(rewards, groups, strict=True):
        members = [r for r, g in zip(rewards, groups, strict=True) if g == group]
        mean = sum(members) / len(members)
        std = math.sqrt(sum((r - mean) ** 2 for r in members) / (len(members) - 1))
        if all(r == members[0] for r in members):
            out.append(0.0)
        else:
            out.append((reward - mean) / (std + 1e-6) if normalize_std else reward - mean)
    return out


def loss(
    logprobs: Sequence[Sequence[float]],
    old_logprobs: Sequence[Sequence[float]],
    sample_advantages: Sequence[float],
    low: float,
    high: float,
    aggregation: str,
) -> float:
    per_sample, all_terms = [], []
    for new, old, advantage in zip(logprobs, old_logprobs, sample_advantages, strict=True):
        terms = []
        for p, q in zip(new, old, strict=True):
            ratio = math.exp(p - q)
            clipped = min(max(ratio, 1 - low), 1 + high)
            terms.append(-min(ratio * advantage, clipped * advantage))
        per_sample.append(sum(terms) / len(terms))
        all_terms += terms
    return sum(per_sample) / len(per_sample) if aggregation == "sequence" else sum(all_terms) / len(all_terms)
