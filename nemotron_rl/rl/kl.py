"""Estimates of the KL divergence from a reference model, per sampled token."""

from __future__ import annotations

import torch
from torch import Tensor


def k3(logprob_BL: Tensor, reference_logprob_BL: Tensor) -> Tensor:
    """exp(q - p) - (q - p) - 1 with p the policy's and q the reference's log-prob; never negative, in nats.

    Schulman, "Approximating KL divergence" (2020), estimator k3.
    """
    difference_BL = reference_logprob_BL - logprob_BL
    return torch.exp(difference_BL) - difference_BL - 1
