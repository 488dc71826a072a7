"""Ctrl-C ends a run with one line. Knows signals and logging, not flows."""

from __future__ import annotations

import contextlib
import logging
import signal
from collections.abc import Iterator
from types import FrameType

import typer

from nemotron_rl.report.reporter import Reporter

EXIT_CODE = 130
"""What shells use for a command that SIGINT ended: 128 + 2."""


@contextlib.contextmanager
def ended_by_interrupt(reporter: Reporter, advice: str) -> Iterator[None]:
    """Whatever the block raises after a SIGINT becomes one line with `advice`, and exit code 130.

    A terminal sends SIGINT to Prefect's temporary server too, so that the flow's own account of the interrupt ends in
    pages about a lost connection. From the interrupt on nothing is logged any more.
    """
    interrupted = False

    def note(signum: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        logging.disable(logging.CRITICAL)
        reporter.note("interrupted; its job is being ended")
        signal.default_int_handler(signum, frame)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    except BaseException as error:
        if not interrupted:
            raise
        reporter.note(advice)
        raise typer.Exit(EXIT_CODE) from error
    finally:
        signal.signal(signal.SIGINT, before)
