"""Prompts and their reward."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Literal

from pydantic import Field

from nemotron_rl.config.base import Frozen


class ArithmeticSettings(Frozen):
    """Generated prompts: `a+b=` over pairs of operands."""

    max_left: int = Field(99, ge=0, le=999)
    """Left operands are 0 to this."""
    max_right: int = Field(9, ge=0, le=999)
    """Right operands are 0 to this."""
    operators: tuple[Literal["+", "-"], ...] = Field(("+",), min_length=1)
    """Operators to use."""
    carry: bool = False
    """Whether a digit may carry into the next one, or borrow from it. Without, a small model can learn the rule."""

    @property
    def problems(self) -> list[tuple[int, str, int]]:
        """All (left, operator, right), each once, in a fixed order."""
        operands = product(range(self.max_left + 1), dict.fromkeys(self.operators), range(self.max_right + 1))
        return [problem for problem in operands if self.carry or not carries(*problem)]


def carries(left: int, operator: str, right: int) -> bool:
    """Whether any digit of the sum carries, or of the difference borrows."""
    width = max(len(str(left)), len(str(right)))
    digits = [(int(a), int(b)) for a, b in zip(f"{left:0{width}}", f"{right:0{width}}", strict=True)]
    return any(a + b > 9 for a, b in digits) if operator == "+" else any(a < b for a, b in digits)


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
