"""When each stage started and how long it took, kept in the run's folder so that a restarted run knows it too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from nemotron_rl.config.base import Frozen
from nemotron_rl.report.run_report import StageTime

TIMELINE_FILE = "stages.jsonl"


class Entry(Frozen):
    """One line: a stage that ended."""

    started: datetime
    stage: StageTime


@contextmanager
def timed(run_dir: Path, name: str, *, cached: bool = False) -> Iterator[None]:
    """Add a line for the stage when the context ends without an exception."""
    started = datetime.now(UTC)
    yield
    seconds = (datetime.now(UTC) - started).total_seconds()
    entry = Entry(started=started, stage=StageTime(name=name, seconds=max(0.0, seconds), cached=cached))
    with (run_dir / TIMELINE_FILE).open("a", encoding="utf-8") as file:
        file.write(entry.model_dump_json() + "\n")


def read_timeline(run_dir: Path) -> list[Entry]:
    """The run's stages in the order in which they first ended; of a stage that ran again, its latest entry."""
    by_name: dict[str, Entry] = {}
    for line in (run_dir / TIMELINE_FILE).read_text(encoding="utf-8").splitlines():
        entry = Entry.model_validate_json(line)
        by_name[entry.stage.name] = entry
    return list(by_name.values())
