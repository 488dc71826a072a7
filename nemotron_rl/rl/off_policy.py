"""Weights for tokens that the engine sampled with other probabilities than the trainer computes.

B samples · L tokens
"""

from __future__ import annotations

import torch
from torch import Tensor

from nemotron_rl.config.rl import OffPolicySettings


def rollout_weights(
    trainer_logprob_BL: Tensor, rollout_logprob_BL: Tensor, mask_BL: Tensor, settings: OffPolicySettings
) -> Tensor:
    """Importance weights [B, L] for the policy loss, from log-probs before the update; 0 outside the response.

    With r = p_trainer / p_engine of a token, or the product of a response's r at level `sequence`:
    `truncate`, TIS: min(max(r, low), high); Yao et al., "Your efficient RL framework secretly brings you off-policy RL
    training" (2025). `mask`, MIS: r within [low, high] and 0 outside; Liu et al., "When speed kills stability" (2025).
    Responses beyond `mismatch_max` get 0 whatever the correction. Tokens of weight 0 still count in means of the loss.
    """
    log_ratio_BL = (trainer_logprob_BL - rollout_logprob_BL) * mask_BL
    weight_BL = _corrected(log_ratio_BL, settings) * mask_BL
    if settings.mismatch_max is None:
        return weight_BL
    return weight_BL * (mismatch(log_ratio_BL, mask_BL) <= settings.mismatch_max)[:, None]


def mismatch(log_ratio_BL: Tensor, mask_BL: Tensor) -> Tensor:
    """Mean |log p_trainer - log p_engine| over each response's tokens, in nats, [B].

    Differences of opposite sign do not cancel, as they do in the ratio of the whole response.
    """
    return (log_ratio_BL.abs() * mask_BL).sum(-1) / mask_BL.sum(-1).clamp(min=1)


def _corrected(log_ratio_BL: Tensor, settings: OffPolicySettings) -> Tensor:
    if settings.correction == "none":
        return torch.ones_like(log_ratio_BL)
    if settings.level == "sequence":
        log_ratio_BL = log_ratio_BL.sum(-1, keepdim=True).expand_as(log_ratio_BL)
    ratio_BL = torch.exp(log_ratio_BL)
    held_BL = ratio_BL.clamp(settings.low, settings.high)
    return held_BL if settings.correction == "truncate" else torch.where(held_BL == ratio_BL, ratio_BL, 0.0)
