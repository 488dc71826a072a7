"""Progress of work on bytes as people read it: how much is done, how fast it goes and how long it will take."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from nemotron_rl.report import format as fmt
from nemotron_rl.report.reporter import Reporter

WINDOW_S = 15.0
"""The rate is that of the last seconds, so that it follows a network that changes."""
_SOON_S = 1.0
"""A rate of less time than this says little."""


class Pace:
    """The rate of the bytes that it is told about.

    What was done before the first time it is told (by an earlier try) counts as done, not as fast.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()

    def text(self, done: int, total: int) -> str:
        """`1.2 GB of 71 GB, 310 MB/s, 3 min 45 s left`; rate and time only when there is a rate to speak of."""
        rate = self._rate(done)
        amount = f"{fmt.size(done)} of {fmt.size(total)}"
        if rate is None:
            return amount
        return f"{amount}, {fmt.size(rate)}/s, {fmt.seconds((total - done) / rate)} left"

    def _rate(self, done: int) -> float | None:
        """Bytes per second."""
        now = self._clock()
        self._seen.append((now, done))
        while len(self._seen) > 2 and now - self._seen[1][0] >= WINDOW_S:
            self._seen.popleft()
        began, before = self._seen[0]
        return (done - before) / (now - began) if now - began >= _SOON_S and done > before else None


def bytes_progress(reporter: Reporter, stage: str) -> Callable[[int, int], None]:
    """A checkpoint's progress in bytes as the progress of a running stage."""
    pace = Pace()
    return lambda done, total: reporter.advance(stage, done, total, pace.text(done, total))
