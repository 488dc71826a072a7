"""What is taken from a sample's reward before advantages, and which prompts are left out.

S (in batches B) samples · L tokens
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nemotron_rl.config.rl import AlgorithmSettings
from nemotron_rl.rl.batch import Batch
from nemotron_rl.rl.kl import KL_ESTIMATES


def shaped_rewards(reward_S: Tensor, batch: Batch, settings: AlgorithmSettings, longest: int) -> Tensor:
    """Rewards [S] less the penalties for length and, where it belongs to the reward, for divergence.

    `longest` is the most tokens that a response can have. The divergence of a response is the sum over its tokens,
    between the policy before the update and the reference.
    """
    if settings.overlong_tokens:
        reward_S = reward_S + overlong_penalty(batch.mask_BL.sum(-1), longest, settings.overlong_tokens)
    if settings.kl_coef > 0 and settings.kl_in == "reward":
        kl_BL = KL_ESTIMATES[settings.kl_estimator](batch.old_logprob_BL, batch.reference_logprob_BL)
        reward_S = reward_S - settings.kl_coef * (kl_BL * batch.mask_BL).sum(-1)
    return reward_S


def overlong_penalty(length_S: Tensor, longest: int, cache: int) -> Tensor:
    """DAPO's soft punishment [S], from 0 to -1, to be added to the reward. Lengths are in response tokens.

    0 up to `longest - cache`, then evenly down to -1 at `longest`, and -1 beyond; all 0 when `cache` is 0. Yu et al.,
    DAPO (arXiv 2503.14476), equation 13.
    """
    if cache == 0:
        return torch.zeros_like(length_S)
    return ((longest - cache - length_S) / cache).clamp(-1, 0)


def informative_groups(reward_S: Tensor, group_S: Tensor) -> Tensor:
    """1.0 for samples of prompts whose samples differ in reward, else 0.0, [S].

    The condition of DAPO's dynamic sampling (arXiv 2503.14476, equation 11); see `choose_groups`.
    """
    keep_S = torch.zeros_like(reward_S)
    for group in group_S.unique():
        members = group_S == group
        keep_S[members] = float((reward_S[members] != reward_S[members][0]).any())
    return keep_S


def choose_groups(informative: Sequence[bool], wanted: int) -> list[int]:
    """Places of the groups to train on, ascending: the first `wanted` informative ones, in the order of drawing.

    DAPO (arXiv 2503.14476, section 3.2) draws until there are so many. When drawing ended before, the first of the
    others fill up: they have no weight in the policy loss, but ranks need equally many samples. All when there are
    `wanted` groups.
    """
    by_use = sorted(range(len(informative)), key=lambda place: (not informative[place], place))
    return sorted(by_use[:wanted])
