"""Who is told how a run is going: whoever installed a Reporter, or else the log of the Prefect run."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from prefect.context import FlowRunContext, TaskRunContext
from prefect.logging import get_logger, get_run_logger

from nemotron_rl.gates.measures import Metrics
from nemotron_rl.report import format as fmt
from nemotron_rl.report.reporter import Reporter
from nemotron_rl.report.steps import step_text

type Logger = logging.Logger | logging.LoggerAdapter[logging.Logger]


def run_logger() -> Logger:
    """The log of the running task or flow; outside of both, Prefect's own."""
    inside = TaskRunContext.get() or FlowRunContext.get()
    return get_run_logger() if inside else get_logger("nemotron_rl")


class LogReporter:
    """A Reporter that writes lines into the log of the Prefect run."""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """A line at the start and one at the end."""
        started = time.monotonic()
        run_logger().info("%s: started", name)
        yield
        run_logger().info("%s: done in %s", name, fmt.seconds(time.monotonic() - started))

    def advance(self, stage: str, done: int, total: int, text: str = "") -> None:
        """Nothing: a log is no place for bars."""

    def step(self, stage: str, metrics: Metrics) -> None:
        """One line."""
        run_logger().info("%s: step %d  %s", stage, int(metrics["step"]) + 1, step_text(metrics))

    def cached(self, stage: str) -> None:
        """One line."""
        run_logger().info("%s: taken from the store", stage)

    def note(self, text: str) -> None:
        """One line."""
        run_logger().info("%s", text)


_reporter: ContextVar[Reporter | None] = ContextVar("reporter", default=None)


def reporter() -> Reporter:
    """The Reporter that is installed here, or one that writes to the run's log."""
    return _reporter.get() or LogReporter()


@contextmanager
def use_reporter(chosen: Reporter) -> Iterator[None]:
    """Tell `chosen` about all flows and tasks that run inside the context."""
    token = _reporter.set(chosen)
    try:
        yield
    finally:
        _reporter.reset(token)
