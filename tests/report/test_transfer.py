from __future__ import annotations

from nemotron_rl.report.reporter import NullReporter
from nemotron_rl.report.transfer import Pace, bytes_progress

MB = 1_000_000


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_bytes_rate_and_time_left_are_told() -> None:
    clock = Clock()
    pace = Pace(clock)
    assert pace.text(0, 100 * MB) == "0 B of 100 MB"
    clock.now += 4
    assert pace.text(20 * MB, 100 * MB) == "20 MB of 100 MB, 5 MB/s, 16.0 s left"
    clock.now += 1
    assert pace.text(100 * MB, 100 * MB) == "100 MB of 100 MB, 20 MB/s, 0.0 s left"


def test_what_an_earlier_try_fetched_was_not_fetched_quickly() -> None:
    clock = Clock()
    pace = Pace(clock)
    assert pace.text(900 * MB, 1000 * MB) == "900 MB of 1 GB"
    clock.now += 10
    assert pace.text(910 * MB, 1000 * MB) == "910 MB of 1 GB, 1 MB/s, 1 min 30 s left"


def test_the_rate_is_that_of_the_last_seconds() -> None:
    clock = Clock()
    pace = Pace(clock)
    for _ in range(60):
        clock.now += 1
        pace.text(0, 100 * MB)
    for done in range(1, 31):
        clock.now += 1
        text = pace.text(done * MB, 100 * MB)
    assert text == "30 MB of 100 MB, 1 MB/s, 1 min 10 s left"


def test_nothing_moves_and_nothing_is_promised() -> None:
    clock = Clock()
    pace = Pace(clock)
    for _ in range(3):
        clock.now += 5
        assert pace.text(0, 100) == "0 B of 100 B"
    assert pace.text(0, 0) == "0 B of 0 B"


def test_a_reporter_is_told() -> None:
    told: list[tuple[str, int, int, str]] = []

    class Listener(NullReporter):
        def advance(self, stage: str, done: int, total: int, text: str = "") -> None:
            told.append((stage, done, total, text))

    bytes_progress(Listener(), "slice")(5, 10)
    assert told == [("slice", 5, 10, "5 B of 10 B")]
