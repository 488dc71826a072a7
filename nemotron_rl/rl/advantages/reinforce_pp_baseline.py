"""The advantages of REINFORCE++-baseline: centred within a prompt, scaled over the whole batch."""

from __future__ import annotations

from torch import Tensor

from nemotron_rl.config.rl import AlgorithmSettings
from nemotron_rl.rl.advantages import Estimator
from nemotron_rl.rl.advantages.groups import centred, per_group


def reinforce_pp_baseline(reward_S: Tensor, group_S: Tensor, settings: AlgorithmSettings) -> Tensor:
    """A_i = (a_i - mean(a of the batch)) / std(a of the batch), here before that: a_i, [S].

    a_i = r_i - mean(r of the group).

    Hu et al., REINFORCE++ (arXiv 2501.03262), the variant with a group baseline. Mean and deviation are over samples.
    """
    return per_group(reward_S, group_S, centred)


ESTIMATOR = Estimator(reinforce_pp_baseline, over_batch=True)
