"""Estimates of the KL divergence from a reference model, per sampled token.

Schulman, "Approximating KL divergence" (2020). With p the policy's and q the reference's log-prob of a token drawn from
the policy, all in nats. k1 and k3 have the right mean, k2 nearly. As a term of the loss only k2 has the right gradient
(and k1's is zero on average); in the reward only k1 leads to it: Tang and Munos (arXiv 2506.09477).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

KlEstimate = Callable[[Tensor, Tensor], Tensor]
"""(logprob_BL, reference_logprob_BL) -> estimate of each token [B, L]."""


def k1(logprob_BL: Tensor, reference_logprob_BL: Tensor) -> Tensor:
    """p - q: unbiased, of high variance, and of either sign."""
    return logprob_BL - reference_logprob_BL


def k2(logprob_BL: Tensor, reference_logprob_BL: Tensor) -> Tensor:
    """(p - q)^2 / 2: never negative, slightly biased."""
    return (logprob_BL - reference_logprob_BL).square() / 2


def k3(logprob_BL: Tensor, reference_logprob_BL: Tensor) -> Tensor:
    """exp(q - p) - (q - p) - 1: never negative, unbiased, of low variance while the models are close."""
    difference_BL = reference_logprob_BL - logprob_BL
    return torch.exp(difference_BL) - difference_BL - 1


KL_ESTIMATES: dict[str, KlEstimate] = {"k1": k1, "k2": k2, "k3": k3}
"""All estimates by name."""
