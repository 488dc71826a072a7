"""GRPO's clipped surrogate with a bound on what a token of negative advantage can lose."""

from __future__ import annotations

import torch
from torch import Tensor

from nemotron_rl.config.rl import AlgorithmSettings
from nemotron_rl.rl.losses import LossTerms
from nemotron_rl.rl.losses.clipped import clipped_surrogate


def loss(
    logprob_BL: Tensor, old_logprob_BL: Tensor, advantage_BL: Tensor, mask_BL: Tensor, settings: AlgorithmSettings
) -> LossTerms:
    """-max(min(r A, clip(r) A), c A) where A < 0, and GRPO's loss elsewhere; c is `clip_dual`, per token.

    Ye et al., "Mastering Complex Control in MOBA Games" (arXiv 1912.09729), equation 5. Without it a token that became
    much more probable although it is bad has an unbounded loss.
    """
    terms = clipped_surrogate(torch.exp(logprob_BL - old_logprob_BL), advantage_BL, settings)
    most_BL = -settings.clip_dual * advantage_BL
    bounded_BL = torch.where(advantage_BL < 0, torch.minimum(terms.loss_BL, most_BL), terms.loss_BL)
    held_BL = ((advantage_BL < 0) & (terms.loss_BL > most_BL)).float()
    return LossTerms(bounded_BL, terms.means | {"train/dual_clip_fraction": held_BL})
