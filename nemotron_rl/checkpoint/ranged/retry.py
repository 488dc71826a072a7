"""Reads a range in spite of passing faults: tries again from the byte where it broke off."""

from __future__ import annotations

import threading
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from time import time

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential_jitter
from tenacity.nap import sleep_using_event

from nemotron_rl.checkpoint.ranged.source import ByteSource, SourceUnavailable, Transient
from nemotron_rl.errors import CheckpointError

ATTEMPTS = 8
"""In a row, without a byte between them."""
LONGEST_WAIT_S = 300.0
_BACKOFF = wait_exponential_jitter(multiplier=0.5, max=30, jitter=0.5)
Sink = Callable[[int, bytes | memoryview], None]
"""Called with (place in the file, bytes), in order."""


class Stopped(Exception):
    """Somebody else failed, so this read was given up."""


def read_range(
    source: ByteSource, file: str, start: int, stop: int, sink: Sink, give_up: threading.Event | None = None
) -> None:
    """Pass bytes `start` to `stop` of a file to `sink`, each once, whatever it takes within reason.

    Args:
        source: Where the file is.
        file: Its name.
        start: First byte.
        stop: One past the last byte.
        sink: Takes the bytes.
        give_up: When set, waiting and reading end soon with `Stopped`.

    Raises:
        SourceUnavailable: `ATTEMPTS` tries in a row brought nothing.
        CheckpointError: See `ByteSource.read`, and the verdict of a fault that did not pass.
        Stopped: `give_up` was set.
    """
    stopped = give_up or threading.Event()
    at = start
    while at < stop:
        before = at
        try:
            for attempt in _retrying(stopped):
                with attempt:
                    for chunk in source.read(file, at, stop):
                        if stopped.is_set():
                            raise Stopped
                        if at + len(chunk) > stop:
                            raise CheckpointError(f"{source.where}/{file}: the source sent more than was asked for")
                        sink(at, chunk)
                        at += len(chunk)
                    if at < stop:
                        raise Transient("the answer ended early")
        except Transient as error:
            if stopped.is_set():
                raise Stopped from error
            if at == before:
                raise error.verdict or SourceUnavailable(
                    f"{source.where}/{file} could not be read: {error}, {ATTEMPTS} times in a row. What was fetched is "
                    "kept: run the same command again to continue"
                ) from error


def read_bytes(source: ByteSource, file: str, start: int, stop: int) -> bytes:
    """A small range, in memory. Raises as `read_range` does."""
    data = bytearray()
    read_range(source, file, start, stop, lambda _, chunk: data.extend(chunk))
    return bytes(data)


def seconds_asked_for(retry_after: str | None) -> float | None:
    """A Retry-After header, which is a number of seconds or a date, as seconds from now; None when it is neither."""
    if retry_after is None:
        return None
    try:
        wait = float(retry_after) if retry_after.strip().isdecimal() else _until(retry_after)
    except ValueError:
        return None
    return min(max(wait, 0.0), LONGEST_WAIT_S)


def _until(date: str) -> float:
    return parsedate_to_datetime(date).timestamp() - time()


def _retrying(stopped: threading.Event) -> Retrying:
    enough = stop_after_attempt(ATTEMPTS)
    return Retrying(
        retry=retry_if_exception_type(Transient),
        stop=lambda state: stopped.is_set() or enough(state),
        wait=_wait,
        sleep=sleep_using_event(stopped),
        reraise=True,
    )


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    asked = error.wait_s if isinstance(error, Transient) else None
    return _BACKOFF(state) if asked is None else asked
