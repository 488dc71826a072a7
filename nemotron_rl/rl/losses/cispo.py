"""CISPO: the importance weight is clipped, the gradient of no token is."""

from __future__ import annotations

import torch
from torch import Tensor

from nemotron_rl.config.rl import AlgorithmSettings
from nemotron_rl.rl.losses import LossTerms


def loss(
    logprob_BL: Tensor, old_logprob_BL: Tensor, advantage_BL: Tensor, mask_BL: Tensor, settings: AlgorithmSettings
) -> LossTerms:
    """-sg[clip(r, 1 - low, 1 + high)] A log p with r = p / p_old and sg[] without gradient, per token.

    MiniMax-M1 (arXiv 2506.13585), equations 4 and 5. The paper sets no lower bound: clip_low = 1. The clip fraction
    counts tokens whose weight is held at a bound.
    """
    ratio_BL = torch.exp(logprob_BL.detach() - old_logprob_BL)
    weight_BL = ratio_BL.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    held_BL = (weight_BL != ratio_BL).float()
    return LossTerms(-weight_BL * advantage_BL * logprob_BL, {"train/clip_fraction": held_BL, "train/ratio": ratio_BL})
