"""GRPO's advantages: rewards compared within a prompt."""

from __future__ import annotations

from torch import Tensor

from nemotron_rl.config.rl import AlgorithmSettings
from nemotron_rl.rl.advantages import Estimator
from nemotron_rl.rl.advantages.groups import centred, per_group


def group_normalized(reward_S: Tensor, group_S: Tensor, normalize_std: bool = True, eps: float = 1e-6) -> Tensor:
    """GRPO's advantages [S]: reward less its group's mean, over the group's standard deviation.

    `group_S` says which prompt each sample belongs to; a group needs two samples. The deviation is that of a sample
    (divisor G - 1). Groups whose rewards are all equal get exactly zero. Shao et al., DeepSeekMath (arXiv 2402.03300),
    section 4.1; without `normalize_std`: Liu et al., Dr. GRPO (arXiv 2503.20783).
    """

    def advantage(reward_G: Tensor) -> Tensor:
        return centred(reward_G) / (reward_G.std() + eps) if normalize_std else centred(reward_G)

    return per_group(reward_S, group_S, advantage)


def _centre(reward_S: Tensor, group_S: Tensor, settings: AlgorithmSettings) -> Tensor:
    return group_normalized(reward_S, group_S, settings.normalize_std)


ESTIMATOR = Estimator(_centre)
