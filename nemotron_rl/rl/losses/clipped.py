"""The clipped surrogate that several losses share; they differ in the ratio."""

from __future__ import annotations

import torch
from torch import Tensor

from nemotron_rl.config.rl import AlgorithmSettings
from nemotron_rl.rl.losses import LossTerms


def clipped_surrogate(ratio_BL: Tensor, advantage_BL: Tensor, settings: AlgorithmSettings) -> LossTerms:
    """-min(r A, clip(r, 1 - low, 1 + high) A), how often the clip binds, and the ratio.

    Schulman et al., PPO (arXiv 1707.06347), equation 7, with separate bounds.
    """
    clipped_BL = ratio_BL.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    gain_BL = torch.minimum(ratio_BL * advantage_BL, clipped_BL * advantage_BL)
    cut_BL = (clipped_BL * advantage_BL < ratio_BL * advantage_BL).float()
    return LossTerms(-gain_BL, {"train/clip_fraction": cut_BL, "train/ratio": ratio_BL.detach()})
