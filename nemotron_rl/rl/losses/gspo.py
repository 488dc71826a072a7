"""GSPO: the ratio is that of the whole response, per token by geometric mean."""

from __future__ import annotations

import torch
from torch import Tensor

from nemotron_rl.config.rl import AlgorithmSettings
from nemotron_rl.rl.losses import LossTerms
from nemotron_rl.rl.losses.clipped import clipped_surrogate


def loss(
    logprob_BL: Tensor, old_logprob_BL: Tensor, advantage_BL: Tensor, mask_BL: Tensor, settings: AlgorithmSettings
) -> LossTerms:
    """-min(s A, clip(s, 1 - low, 1 + high) A) with s = (p(y) / p_old(y))^(1 / |y|) of the response y, at each token.

    Zheng et al., GSPO (arXiv 2507.18071), equations 5 and 7, in the form of GSPO-token (equations 13 and 14): each
    token has s as its value, and the gradient of its own log-prob. Where a response has one advantage both forms have
    the same value and gradient; the paper's objective is then that of `aggregation = sequence`. The paper clips at 3e-4
    and 4e-4.
    """
    length_B1 = mask_BL.sum(-1, keepdim=True).clamp(min=1)
    log_ratio_BL = (logprob_BL.detach() - old_logprob_BL) * mask_BL
    ratio_B1 = torch.exp(log_ratio_BL.sum(-1, keepdim=True) / length_B1)
    own_BL = torch.exp(logprob_BL - logprob_BL.detach())  # 1, with the gradient of the log-prob
    return clipped_surrogate(ratio_B1 * own_BL, advantage_BL, settings)
