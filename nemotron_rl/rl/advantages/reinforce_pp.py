"""REINFORCE++'s advantages: rewards compared over the whole batch, whatever their prompt."""

from __future__ import annotations

from torch import Tensor

from nemotron_rl.config.rl import AlgorithmSettings
from nemotron_rl.rl.advantages import Estimator


def reinforce_pp(reward_S: Tensor, group_S: Tensor, settings: AlgorithmSettings) -> Tensor:
    """A_i = (r_i - mean(r of the batch)) / std(r of the batch), here before that normalisation: r_i, [S].

    Hu et al., REINFORCE++ (arXiv 2501.03262), the global advantage normalisation. The paper's KL penalty is part of the
    reward: `kl_in = reward` and `kl_estimator = k1`, here as one sum over the response rather than one from each token
    on. Mean and deviation are over samples, not over tokens.
    """
    return reward_S


ESTIMATOR = Estimator(reinforce_pp, over_batch=True)
