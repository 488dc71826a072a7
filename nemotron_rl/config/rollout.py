"""How prompts become samples."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from nemotron_rl.config.base import Frozen


class SamplingSettings(Frozen):
    """How the next token is drawn."""

    temperature: float = Field(1.0, ge=0)
    """0 is greedy."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Smallest set of tokens whose probability reaches this."""
    top_k: int = Field(0, ge=0)
    """Number of most likely tokens to draw from; 0 is all."""
    max_new_tokens: int = Field(8, ge=1)
    """Longest response, in tokens."""


class RolloutSettings(Frozen):
    """The engine and its samples."""

    engine: Literal["reference", "sglang"] = "reference"
    """`reference` runs on CPU in the trainer's process; `sglang` on GPUs."""
    samples_per_prompt: int = Field(8, ge=2)
    """Group size G of GRPO."""
    sampling: SamplingSettings = SamplingSettings()
    """Sampling during training."""
