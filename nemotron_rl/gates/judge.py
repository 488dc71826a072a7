"""The gates, one function each, and the verdict over all of them. A bounded gate without its figure fails."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nemotron_rl.config.judging import GateSettings
from nemotron_rl.evaluate.scores import Evaluation
from nemotron_rl.gates import measures
from nemotron_rl.gates.measures import Metrics
from nemotron_rl.gates.verdict import Comparison, GateResult, Verdict


@dataclass(frozen=True)
class Evidence:
    """What a run leaves to be judged."""

    metrics: Sequence[Metrics]
    """One mapping per training step."""
    evaluation: Evaluation | None
    """None when nothing was evaluated."""


@dataclass(frozen=True)
class Measured:
    """A gate's figure."""

    value: float | None
    """None: it was not recorded."""
    detail: str
    """What it was taken from, or what is missing."""


Measure = Callable[[Evidence], Measured]


@dataclass(frozen=True)
class Gate:
    """A figure and how it is held to its bound."""

    measure: Measure
    comparison: Comparison
    unit: str
    bound: float | None
    """None: the bound is the setting of the gate's name."""


GATES: dict[str, Gate] = {}
"""Every gate by name, in the order of this file."""


def gate(comparison: Comparison, unit: str, *, bound: float | None = None) -> Callable[[Measure], Measure]:
    """Register a figure as a gate named after its function; its bound is the setting of the same name."""

    def register(measure: Measure) -> Measure:
        GATES[measure.__name__] = Gate(measure, comparison, unit, bound)
        return measure

    return register


def judge(settings: GateSettings, metrics: Sequence[Metrics], evaluation: Evaluation | None) -> Verdict:
    """Hold a run to its bounds.

    Args:
        settings: The bounds.
        metrics: One mapping per training step, in order.
        evaluation: Scores by checkpoint; None when nothing was evaluated.
    """
    evidence = Evidence(metrics, evaluation)
    bounds: Mapping[str, float | None] = settings.model_dump()
    return Verdict(gates=tuple(_hold(name, gate, evidence, bounds) for name, gate in GATES.items()))


def _hold(name: str, gate: Gate, evidence: Evidence, bounds: Mapping[str, float | None]) -> GateResult:
    bound = gate.bound if gate.bound is not None else bounds[name]
    measured = gate.measure(evidence)
    return GateResult(
        name=name,
        passed=bound is None or _holds(measured.value, gate.comparison, bound),
        value=measured.value,
        bound=bound,
        comparison=gate.comparison,
        unit=gate.unit,
        detail=measured.detail,
    )


def _holds(value: float | None, comparison: Comparison, bound: float) -> bool:
    """Whether the value keeps the bound. Neither a missing value nor NaN ever does."""
    if value is None or math.isnan(value):
        return False
    return value <= bound if comparison == "<=" else value >= bound


@gate("<=", "nats")
def logprob_abs_diff_max(evidence: Evidence) -> Measured:
    return _worst_step(evidence, "logprob/abs_diff_max")


@gate("<=", "nats")
def logprob_abs_diff_p99(evidence: Evidence) -> Measured:
    """The worst step's percentile, which bounds that of the whole run."""
    return _worst_step(evidence, "logprob/abs_diff_p99")


@gate("<=", "tensors")
def tensors_mismatched(evidence: Evidence) -> Measured:
    compared = measures.total(evidence.metrics, "sync/tensors")
    mismatched = measures.total(evidence.metrics, "sync/mismatched")
    if not compared or mismatched is None:
        return Measured(None, "sync/tensors or sync/mismatched is missing, or no tensor was compared")
    return Measured(mismatched, f"{compared:.0f} tensors compared in {len(evidence.metrics)} pushes")


@gate("<=", "values", bound=0)
def metrics_not_finite(evidence: Evidence) -> Measured:
    if not evidence.metrics:
        return Measured(None, "no step was recorded")
    found = measures.not_finite(evidence.metrics)
    return Measured(len(found), found[0] if found else f"every metric of {len(evidence.metrics)} steps is finite")


@gate(">=", "x")
def reward_gain_min(evidence: Evidence) -> Measured:
    rewards = measures.reward_before_after(evidence.metrics)
    if rewards is None:
        return Measured(None, "reward/mean is missing")
    detail = f"{rewards[0]:.3f} in the first step, {rewards[1]:.3f} in the last quarter"
    return Measured(measures.reward_gain(evidence.metrics), detail)


@gate(">=", "accuracy")
def accuracy_gain_min(evidence: Evidence) -> Measured:
    gain = measures.accuracy_gain(evidence.evaluation)
    if gain is None or evidence.evaluation is None:
        return Measured(None, "the evaluation lacks `base` or `trained`")
    base, trained = (evidence.evaluation.models[name] for name in ("base", "trained"))
    return Measured(gain, f"{base.accuracy:.3f} before, {trained.accuracy:.3f} after")


@gate("<=", "nats/token")
def mtp_loss_max(evidence: Evidence) -> Measured:
    if not evidence.metrics or "train/mtp_loss" not in evidence.metrics[-1]:
        return Measured(None, "the last step has no train/mtp_loss: it had no MTP targets, or no MTP head")
    return Measured(evidence.metrics[-1]["train/mtp_loss"], "last step")


@gate("<=", "%/step")
def memory_growth_max(evidence: Evidence) -> Measured:
    growth = measures.memory_growth(evidence.metrics)
    if growth is None:
        return Measured(
            None, f"fewer than {measures.WARM_STEPS + 2} steps say what memory was in use after their phases"
        )
    phase, percent = growth
    return Measured(percent, f"after {phase}, of {len(evidence.metrics)} steps")


def _worst_step(evidence: Evidence, name: str) -> Measured:
    value = measures.largest(evidence.metrics, name)
    if value is None:
        return Measured(None, f"{name} is missing")
    return Measured(value, f"worst of {len(evidence.metrics)} steps")
