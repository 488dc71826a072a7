"""Ctrl-C: one line, exit code 130, whatever the interrupted work raises in the end."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator

import pytest
import typer

from nemotron_rl.cli.interrupt import ended_by_interrupt
from nemotron_rl.report.reporter import NullReporter


class Notes(NullReporter):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    yield
    logging.disable(logging.NOTSET)


def test_an_interrupt_ends_with_its_code_and_says_how_to_go_on() -> None:
    notes, before = Notes(), signal.getsignal(signal.SIGINT)
    with pytest.raises(typer.Exit) as end, ended_by_interrupt(notes, "give --run-id x again"):
        os.kill(os.getpid(), signal.SIGINT)
    assert end.value.exit_code == 130
    assert notes.texts == ["interrupted; its job is being ended", "give --run-id x again"]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_that_follows_an_interrupt_is_not_the_story() -> None:
    with pytest.raises(typer.Exit) as end, ended_by_interrupt(Notes(), ""):
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            raise ConnectionError("the server is gone") from None
    assert end.value.exit_code == 130


def test_an_error_without_an_interrupt_stays_what_it_is() -> None:
    with pytest.raises(ValueError, match="mine"), ended_by_interrupt(Notes(), ""):
        raise ValueError("mine")
