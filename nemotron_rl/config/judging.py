"""Evaluation and the gates that decide the verdict."""

from __future__ import annotations

from pydantic import Field

from nemotron_rl.config.base import Frozen
from nemotron_rl.config.rollout import SamplingSettings


class EvaluateSettings(Frozen):
    """Accuracy on held-out prompts."""

    samples_per_prompt: int = Field(1, ge=1)
    """Samples per prompt; accuracy is their mean."""
    sampling: SamplingSettings = SamplingSettings(temperature=0.0)
    """Sampling during evaluation."""


class GateSettings(Frozen):
    """Bounds that the run must keep. A gate without a bound (None) is reported and cannot fail."""

    logprob_abs_diff_max: float | None = 1e-4
    """Largest |trainer - engine| log-prob of a sampled token, in nats."""
    logprob_abs_diff_p99: float | None = 1e-4
    """99th percentile of the same."""
    tensors_mismatched: int = Field(0, ge=0)
    """Tensors that differ between trainer and engine, summed over all pushes."""
    reward_gain_min: float | None = None
    """Smallest (mean reward of the last quarter of steps) / (of the first step)."""
    accuracy_gain_min: float | None = None
    """Smallest (accuracy trained - accuracy base)."""
    mtp_loss_max: float | None = None
    """Largest MTP loss of the last step, in nats per token."""
    memory_growth_max: float | None = None
    """Largest growth of memory in use from step to step, in percent of all memory of the GPU (or host)."""
