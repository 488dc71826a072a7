"""How long work on bytes tells how far it is. Drawing bars is the caller's business."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""


class Meter:
    """Adds up bytes and passes the sum on to a `Progress`."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        """Start at 0 of `total` bytes; without a `progress` nothing is reported."""
        self._done, self._total, self._progress = 0, total, progress

    def add(self, nbytes: int) -> None:
        """`nbytes` more are done."""
        self._done += nbytes
        if self._progress is not None:
            self._progress(self._done, self._total)
