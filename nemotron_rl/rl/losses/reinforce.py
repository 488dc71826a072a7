"""The plain policy gradient, as REINFORCE and RLOO use it."""

from __future__ import annotations

import torch
from torch import Tensor

from nemotron_rl.config.rl import AlgorithmSettings
from nemotron_rl.rl.losses import LossTerms


def loss(
    logprob_BL: Tensor, old_logprob_BL: Tensor, advantage_BL: Tensor, mask_BL: Tensor, settings: AlgorithmSettings
) -> LossTerms:
    """-A log p, per token; no ratio and no clipping, so it is meant for one update per rollout.

    Williams, "Simple statistical gradient-following algorithms" (1992), the episodic REINFORCE rule in the form of
    a loss; with `advantage = rloo`: Ahmadian et al. (arXiv 2402.14740), section 3.2.
    """
    ratio_BL = torch.exp(logprob_BL.detach() - old_logprob_BL)
    return LossTerms(-advantage_BL * logprob_BL, {"train/ratio": ratio_BL})
