"""Dr. GRPO's advantages: GRPO's without the division by the standard deviation."""

from __future__ import annotations

from torch import Tensor

from nemotron_rl.config.rl import AlgorithmSettings
from nemotron_rl.rl.advantages import Estimator
from nemotron_rl.rl.advantages.groups import centred, per_group


def dr_grpo(reward_S: Tensor, group_S: Tensor, settings: AlgorithmSettings) -> Tensor:
    """A_i = r_i - mean(r of the group), [S].

    Liu et al., "Understanding R1-Zero-Like Training" (arXiv 2503.20783), section 3.2. The paper's other half, a
    constant in place of a response's length, is `aggregation = constant`.
    """
    return per_group(reward_S, group_S, centred)


ESTIMATOR = Estimator(dr_grpo)
