"""Rewards by the name that `reward.name` has in the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nemotron_rl.config.nearest import nearest, one_of
from nemotron_rl.errors import SettingsError
from nemotron_rl.reward.exact import exact
from nemotron_rl.reward.math import MathReward

Reward = Callable[[str, str], float]
"""(response text, label) → reward in [0, 1]. May be called from several threads."""

REWARDS: Mapping[str, Callable[[], Reward]] = {"exact": lambda: exact, "math": MathReward}
"""A maker of each reward."""


def reward_function(name: str) -> Reward:
    """The reward of that name. Raises SettingsError for an unknown one."""
    if name not in REWARDS:
        guess = nearest(name, REWARDS)
        hint = f" (did you mean {guess}?)" if guess else ""
        raise SettingsError(f"reward.name = {name}: unknown reward; use {one_of(REWARDS)}{hint}")
    return REWARDS[name]()
