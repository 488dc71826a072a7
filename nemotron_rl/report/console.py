"""Progress in the terminal: a live bar per running stage, and one lasting line per step and per finished stage.

Without a terminal (a pipe, a log file) the lasting lines are all there is.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from nemotron_rl.gates.measures import Metrics
from nemotron_rl.report import format as fmt
from nemotron_rl.report.steps import step_text

WARMUP_EVERY = 10
"""A warm-up step takes a fraction of a second, so only every tenth gets a line; the bar shows all of them."""
WIDTH = 120
"""Columns where there is no terminal to ask."""
_NAME_WIDTH = 9


def open_console(file: TextIO) -> Console:
    """A console on stdout or stderr; wide when that is not a terminal, so that a log's tables need no folding."""
    return Console(file=file, highlight=False, width=None if file.isatty() else WIDTH)


class RichReporter:
    """A Reporter that draws. Open it as a context, so that the terminal is put back in order."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or open_console(sys.stderr)
        self._lock = threading.Lock()
        self._tasks: dict[str, TaskID] = {}
        self._totals: dict[str, int] = {}
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn(f"[bold]{{task.description:<{_NAME_WIDTH}}}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[text]}", style="dim"),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Show a bar while the context is open and a lasting line afterwards."""
        with self._lock:
            self._tasks[name] = self._progress.add_task(name, total=None, text="")
        if not self.console.is_terminal:
            self._line("·", name, "started", "dim")
        started = time.monotonic()
        mark, style = "✗", "red"
        try:
            yield
            mark, style = "✓", "green"
        finally:
            with self._lock:
                self._progress.remove_task(self._tasks.pop(name))
                self._totals.pop(name, None)
            self._line(mark, name, fmt.seconds(time.monotonic() - started), style)

    def advance(self, stage: str, done: int, total: int, text: str = "") -> None:
        """Move the bar of a running stage; ignored for one that is not."""
        with self._lock:
            if stage in self._tasks:
                self._totals[stage] = total
                self._progress.update(self._tasks[stage], completed=done, total=total, text=text)

    def step(self, stage: str, metrics: Metrics) -> None:
        """One line; for warm-up steps, of every tenth."""
        number = int(metrics.get("step", 0)) + 1
        with self._lock:
            total = self._totals.get(stage)
        if "warmup/loss" in metrics and number % WARMUP_EVERY and number != total:
            return
        of = f"{number}/{total}" if total else f"{number}"
        self._line(" ", stage, f"{of:>7}  {step_text(metrics)}", "")

    def cached(self, stage: str) -> None:
        """A line of its own: nothing ran."""
        self._line("✓", stage, "from the store", "cyan")

    def note(self, text: str) -> None:
        """A dim line."""
        self.console.print(Text(f"  {text}", style="dim"), soft_wrap=True)

    def _line(self, mark: str, name: str, text: str, style: str) -> None:
        line = Text.assemble((f"{mark} {name:<{_NAME_WIDTH}} ", f"bold {style}".strip()), text)
        self.console.print(line, soft_wrap=True)
