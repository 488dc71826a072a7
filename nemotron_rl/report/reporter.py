"""How a run tells about its progress, whoever listens. Drawing is console.py's business."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from nemotron_rl.gates.measures import Metrics


class Reporter(Protocol):
    """Told about stages, their progress and their steps. Every method may be called from any thread."""

    def stage(self, name: str) -> AbstractContextManager[None]:
        """A stage runs while the context is open; leaving it by an exception means that it failed."""

    def advance(self, stage: str, done: int, total: int, text: str = "") -> None:
        """`done` of `total` units (steps, bytes) of a running stage; `text` says what is being done."""

    def step(self, stage: str, metrics: Metrics) -> None:
        """A training or warm-up step has ended."""

    def cached(self, stage: str) -> None:
        """The stage's result was taken from the store, so it does not run."""

    def note(self, text: str) -> None:
        """Something worth a line."""


class NullReporter:
    """A Reporter that tells nobody."""

    def stage(self, name: str) -> AbstractContextManager[None]:
        """Nothing to show."""
        return nullcontext()

    def advance(self, stage: str, done: int, total: int, text: str = "") -> None:
        """Nothing to show."""

    def step(self, stage: str, metrics: Metrics) -> None:
        """Nothing to show."""

    def cached(self, stage: str) -> None:
        """Nothing to show."""

    def note(self, text: str) -> None:
        """Nothing to show."""
