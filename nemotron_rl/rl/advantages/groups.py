"""One function applied to the rewards of each prompt's samples.

S samples · G samples of one prompt
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def per_group(reward_S: Tensor, group_S: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """`function(reward_G)` of each group, in place, [S]; exactly zero where a group's rewards are all equal."""
    value_S = torch.zeros_like(reward_S)
    for group in group_S.unique():
        members = group_S == group
        reward_G = reward_S[members]
        if (reward_G == reward_G[0]).all():
            continue  # a rounded mean would leave a difference, which a tiny deviation would blow up
        value_S[members] = function(reward_G)
    return value_S


def centred(reward_G: Tensor) -> Tensor:
    """Less their mean, [G]."""
    return reward_G - reward_G.mean()
