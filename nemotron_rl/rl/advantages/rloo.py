"""RLOO's advantages: each sample against the mean of its prompt's others."""

from __future__ import annotations

from torch import Tensor

from nemotron_rl.config.rl import AlgorithmSettings
from nemotron_rl.rl.advantages import Estimator
from nemotron_rl.rl.advantages.groups import per_group


def rloo(reward_S: Tensor, group_S: Tensor, settings: AlgorithmSettings) -> Tensor:
    """A_i = r_i - 1 / (G - 1) sum of r_j over j != i, [S]; a group needs two samples.

    Ahmadian et al., "Back to Basics" (arXiv 2402.14740), section 3.2 (RLOO). The baseline does not depend on the sample
    itself, so the gradient is unbiased.
    """
    return per_group(reward_S, group_S, _against_the_others)


def _against_the_others(reward_G: Tensor) -> Tensor:
    return reward_G - (reward_G.sum() - reward_G) / (len(reward_G) - 1)


ESTIMATOR = Estimator(rloo)
