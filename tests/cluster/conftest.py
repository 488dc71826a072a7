"""Jobs for the cluster tests: small Python programs, started the way real ones are."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from nemotron_rl.cluster import JobSpec
from nemotron_rl.cluster.local import LocalCluster

MakeSpec = Callable[..., JobSpec]


@pytest.fixture
def cluster() -> LocalCluster:
    return LocalCluster(os.environ, grace_seconds=1.0)


@pytest.fixture
def job(tmp_path: Path) -> MakeSpec:
    """A job that runs the given Python text."""

    def make(program: str, **changes: object) -> JobSpec:
        script = tmp_path / "program.py"
        script.write_text(textwrap.dedent(program))
        values = {"key": "job-a", "argv": (sys.executable, str(script)), "work_dir": tmp_path / "work"}
        return JobSpec(**(values | changes))  # type: ignore[arg-type]

    return make


@pytest.fixture
def left_over(tmp_path: Path) -> Iterator[Callable[[], list[str]]]:
    """Command lines of processes that mention the test's folder; the test fails if any is left at its end."""

    def find() -> list[str]:
        found = []
        for process in psutil.process_iter(["cmdline", "environ", "status"]):
            seen = " ".join(process.info["cmdline"] or []) + " ".join((process.info["environ"] or {}).values())
            if str(tmp_path) in seen and process.pid != os.getpid() and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(seen)
        return found

    yield find
    assert find() == []
