"""Rewards to advantages.

S samples · G samples per prompt
"""

from __future__ import annotations

import torch
from torch import Tensor


def group_normalized(reward_S: Tensor, group_S: Tensor, normalize_std: bool = True, eps: float = 1e-6) -> Tensor:
    """GRPO's advantages [S]: reward less its group's mean, over the group's standard deviation.

    `group_S` says which prompt each sample belongs to; a group needs two samples. The deviation is that of a sample
    (divisor G - 1). Groups whose rewards are all equal get exactly zero. Shao et al., DeepSeekMath (arXiv 2402.03300),
    section 4.1; without `normalize_std`: Liu et al., Dr. GRPO (arXiv 2503.20783).
    """
    advantage_S = torch.zeros_like(reward_S)
    for group in group_S.unique():
        members = group_S == group
        reward_G = reward_S[members]
        if (reward_G == reward_G[0]).all():
            continue  # a rounded mean would leave a difference, which a tiny deviation would blow up
        centred_G = reward_G - reward_G.mean()
        advantage_S[members] = centred_G / (reward_G.std() + eps) if normalize_std else centred_G
    return advantage_S
