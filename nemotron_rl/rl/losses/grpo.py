"""GRPO's clipped surrogate with separate lower and upper bounds."""

from __future__ import annotations

import torch
from torch import Tensor

from nemotron_rl.config.rl import AlgorithmSettings
from nemotron_rl.rl.losses import LossTerms
from nemotron_rl.rl.losses.clipped import clipped_surrogate


def loss(
    logprob_BL: Tensor, old_logprob_BL: Tensor, advantage_BL: Tensor, mask_BL: Tensor, settings: AlgorithmSettings
) -> LossTerms:
    """-min(r A, clip(r, 1 - low, 1 + high) A) with r = p / p_old, per token.

    Shao et al., DeepSeekMath (arXiv 2402.03300), equation 3; clip-higher (high > low): Yu et al., DAPO
    (arXiv 2503.14476), section 3.1.
    """
    return clipped_surrogate(torch.exp(logprob_BL - old_logprob_BL), advantage_BL, settings)
