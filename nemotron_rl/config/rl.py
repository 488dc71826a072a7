"""The RL algorithm."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from nemotron_rl.config.base import Frozen


class AlgorithmSettings(Frozen):
    """Advantages and policy loss."""

    name: Literal["grpo"] = "grpo"
    """Policy loss, by its registered name."""
    clip_low: float = Field(0.2, ge=0, lt=1)
    """The probability ratio is clipped below 1 - clip_low."""
    clip_high: float = Field(0.28, ge=0)
    """The probability ratio is clipped above 1 + clip_high (DAPO's clip-higher when above clip_low)."""
    kl_coef: float = Field(0.0, ge=0)
    """Weight of the KL penalty to the reference model; above 0 a frozen copy of the starting weights is kept."""
    aggregation: Literal["sequence", "token"] = "token"
    """`sequence`: mean over samples of the mean over tokens (GRPO's paper). `token`: mean over all tokens (DAPO)."""
    normalize_std: bool = True
    """Divide a group's centred rewards by their standard deviation."""
