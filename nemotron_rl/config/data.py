"""Prompts and their reward."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from nemotron_rl.config.base import Frozen


class ArithmeticSettings(Frozen):
    """Generated prompts: `a+b=` over all pairs of operands."""

    max_operand: int = Field(9, ge=1, le=999)
    """Operands are 0 to this."""
    operators: tuple[Literal["+", "-", "*"], ...] = Field(("+",), min_length=1)
    """Operators to use."""

    @property
    def problems(self) -> int:
        """Number of different prompts."""
        return len(set(self.operators)) * (self.max_operand + 1) ** 2


class DataSettings(Frozen):
    """Prompt sets, as JSONL with `prompt` (chat messages) and `label`."""

    train_file: Path | None = None
    """None: arithmetic prompts generated from `seed`."""
    eval_file: Path | None = None
    """None: generated held-out prompts, disjoint from the training prompts."""
    seed: int = Field(0, ge=0)
    """Seed of generated prompts and of their split."""
    eval_prompts: int = Field(64, ge=1)
    """Held-out prompts."""
    shuffle_seed: int = Field(0, ge=0)
    """Order in which training prompts are visited."""
    arithmetic: ArithmeticSettings = ArithmeticSettings()
    """What generated prompts ask."""


class RewardSettings(Frozen):
    """How a response is scored."""

    name: Literal["exact", "math"] = "exact"
    """`exact`: 1 when the response equals the label. `math`: 1 when the answer is mathematically equal to it."""
