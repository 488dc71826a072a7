"""Reads metrics.jsonl, also while a job is still writing it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from nemotron_rl.errors import DataError
from nemotron_rl.gates.measures import Metrics


class MetricsTail:
    """Reads a growing metrics file bit by bit, so that progress can be shown while the job runs.

    A job that is started again may put another file in its place and write steps again; each step is told once.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = 0  # inode
        self._offset = 0
        self._lines = 0
        self._told: set[float] = set()

    def new(self) -> list[Metrics]:
        """The steps whose lines were completed since the last call; none while there is no file.

        Raises:
            DataError: A complete line is not a JSON object of numbers; says which line.
        """
        return [step for step in self.lines() if self._is_news(step)]

    def lines(self) -> list[Metrics]:
        """The same, with the steps that were written again."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            now = os.fstat(file.fileno())
            if now.st_ino != self._file or now.st_size < self._offset:
                self._file, self._offset, self._lines = now.st_ino, 0, 0
            file.seek(self._offset)
            complete, newline, _ = file.read().rpartition(b"\n")
        self._offset += len(complete) + len(newline)
        return [self._parse(line) for line in complete.split(b"\n")] if newline else []

    def _is_news(self, step: Metrics) -> bool:
        if "step" not in step:
            return True
        new = step["step"] not in self._told
        self._told.add(step["step"])
        return new

    def _parse(self, line: bytes) -> Metrics:
        self._lines += 1
        try:
            step = json.loads(line)
        except ValueError as error:
            raise DataError(f"{self.path}, line {self._lines}: not JSON ({error})") from error
        if not isinstance(step, dict) or not all(isinstance(value, int | float) for value in step.values()):
            raise DataError(f"{self.path}, line {self._lines}: expected a JSON object of numbers")
        return step


def read_metrics(path: Path) -> list[Metrics]:
    """Every step of a metrics file in order; a half-written last line is left out.

    A step that was written again, by a job that resumed before it, counts as it was written last.

    Raises:
        DataError: There is no such file, or a complete line is broken.
    """
    if not path.exists():
        raise DataError(f"there are no metrics at {path}")
    by_step = {step.get("step", -1 - position): step for position, step in enumerate(MetricsTail(path).lines())}
    return [by_step[step] for step in sorted(by_step)]
