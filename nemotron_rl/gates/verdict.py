"""The outcome of a run's gates, as data that can be stored, shown and raised."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import ConfigDict

from nemotron_rl.config.base import Frozen
from nemotron_rl.errors import GateFailed

Comparison = Literal["<=", ">="]


class GateResult(Frozen):
    """One gate."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    name: str
    """Its name in the registry and in the settings."""
    passed: bool
    """True also when there is no bound."""
    value: float | None
    """What was measured; None when it was not."""
    bound: float | None
    """What it is held to; None only reports."""
    comparison: Comparison
    """How value and bound must relate."""
    unit: str
    """Unit of both."""
    detail: str
    """What the value is taken from, or why it is missing."""

    def __str__(self) -> str:
        value = "not measured" if self.value is None else f"{self.value:.4g}"
        bound = "no bound" if self.bound is None else f"{self.comparison} {self.bound:g}"
        return f"{self.name}: {value} ({bound} {self.unit}); {self.detail}"


class Verdict(Frozen):
    """All gates of a run."""

    gates: tuple[GateResult, ...]
    """In the order of the registry."""

    @property
    def passed(self) -> bool:
        """Whether every gate held. A verdict without gates proves nothing and has not passed."""
        return bool(self.gates) and not self.failed

    @property
    def failed(self) -> tuple[GateResult, ...]:
        """The gates that did not hold."""
        return tuple(gate for gate in self.gates if not gate.passed)

    def raise_if_failed(self) -> Self:
        """Return self. Raises GateFailed, which lists every failed gate, when one did not hold."""
        if self.passed:
            return self
        lines = [f"  {gate}" for gate in self.failed] or ["  no gate was judged"]
        raise GateFailed("\n".join([f"{len(self.failed)} of {len(self.gates)} gates failed.", *lines]))
