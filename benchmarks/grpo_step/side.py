"""A side of the comparison: a process of its own, which computes only while it is asked to."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.grpo_step.work import FirstUpdate

_SHOWN = 3000
_PATIENCE_S = 60.0


class Side:
    """A started process that has made its first update; `with` ends it.

    Both sides may live at the same time: one that waits for a request uses no core.
    """

    def __init__(self, log: Path, serve: Callable[..., None], *arguments: Any) -> None:
        """`serve(link, *arguments)` sends a FirstUpdate, then the seconds of what it is asked for until `stop`."""
        context = multiprocessing.get_context("spawn")
        self._log = log
        self._link, theirs = context.Pipe()
        self._process = context.Process(target=_logged, args=(log, serve, theirs, *arguments))
        self._process.start()
        theirs.close()
        self.first: FirstUpdate = self._answer()

    def seconds(self, request: str = "update") -> float:
        """Do it once; how long it took, measured on the other side of the pipe."""
        self._link.send(request)
        seconds: float = self._answer()
        return seconds

    def _answer(self) -> Any:
        try:
            return self._link.recv()
        except EOFError:
            self._process.join()
            raise RuntimeError(f"a side has ended: {self._log.read_text(errors='replace')[-_SHOWN:]}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.is_alive():
            self._link.send("stop")
            self._process.join(_PATIENCE_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._link.close()


def _logged(log: Path, serve: Callable[..., None], *arguments: Any) -> None:
    """Both libraries print pages; they belong into a file."""
    with log.open("wb") as out:
        os.dup2(out.fileno(), sys.stdout.fileno())
        os.dup2(out.fileno(), sys.stderr.fileno())
    serve(*arguments)
