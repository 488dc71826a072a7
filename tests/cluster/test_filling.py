"""A folder that a job fills: one launcher at a time; a killed one's job is followed or ended; nothing half-made."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nemotron_rl.cluster import JobSpec, JobState, open_cluster, run_job
from nemotron_rl.cluster.filling import filling
from nemotron_rl.config.run import ClusterSettings
from nemotron_rl.errors import InputError, JobError

LOCAL = ClusterSettings(poll_seconds=0.05)

LAUNCHER = """
import sys
from pathlib import Path
from tests.cluster.test_filling import fill
dst, seconds, made_from, code = sys.argv[1:]
fill(Path(dst), seconds, made_from, int(code))
"""
JOB = """
import sys, time
from pathlib import Path
out, seconds, code = sys.argv[1:]
(Path(out) / "first").write_text("half")
time.sleep(float(seconds))
(Path(out) / "second").write_text("whole")
sys.exit(int(code))
"""


def fill(dst: Path, seconds: str = "0", made_from: str = "a", code: int = 0) -> str:
    """Run a job that fills `dst`; the process that submitted it."""
    work_dir = dst.parent / f"{os.getpid()}"
    with filling(dst, made_from, "fill", work_dir, LOCAL) as job:
        job.work_dir.mkdir(parents=True, exist_ok=True)
        spec = JobSpec(job.key, (sys.executable, "-c", JOB, str(job.out), seconds, str(code)), job.work_dir)
        run_job(open_cluster(LOCAL), spec, poll_seconds=0.05)
        return job.work_dir.parent.name


def launch(dst: Path, seconds: float, made_from: str = "a") -> subprocess.Popen[str]:
    """The same in a process of its own, until its job runs."""
    root = Path(__file__).parents[2]
    started = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(dst), str(seconds), made_from, "0"],
        cwd=root,
        text=True,
        stderr=subprocess.PIPE,
    )
    wait_for(lambda: list(dst.parent.glob(f".{dst.name}.filling/out-*/first")) or started.poll() is not None)
    return started


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def state_of_job(submitted_by: Path) -> JobState:
    (work_dir,) = submitted_by.iterdir()
    handle = open_cluster(LOCAL).attach(f"fill-{work_dir.name}", work_dir)
    assert handle is not None
    return open_cluster(LOCAL).poll(handle).state


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def hidden(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_the_folder_appears_when_the_job_has_ended_well(tmp_path: Path) -> None:
    fill(tmp_path / "deep" / "dst")
    assert sorted(path.name for path in (tmp_path / "deep" / "dst").iterdir()) == ["first", "second"]
    assert hidden(tmp_path / "deep") == []
    with pytest.raises(InputError, match="is not empty"):
        fill(tmp_path / "deep" / "dst")


def test_a_job_that_fails_leaves_nothing_and_the_next_one_succeeds(tmp_path: Path) -> None:
    with pytest.raises(JobError):
        fill(tmp_path / "dst", code=3)
    assert not (tmp_path / "dst").exists() and hidden(tmp_path) == []
    fill(tmp_path / "dst")
    assert (tmp_path / "dst" / "second").exists()


def test_one_run_fills_as_many_folders_as_it_likes_and_one_of_them_twice(tmp_path: Path) -> None:
    fill(tmp_path / "one")
    fill(tmp_path / "other")
    shutil.rmtree(tmp_path / "one")
    fill(tmp_path / "one")
    assert (tmp_path / "one" / "second").exists() and (tmp_path / "other" / "second").exists()


def test_only_one_launcher_fills_a_folder(tmp_path: Path) -> None:
    first = launch(tmp_path / "dst", 3)
    with pytest.raises(InputError, match="another process is writing"):
        fill(tmp_path / "dst")
    assert first.wait() == 0
    assert (tmp_path / "dst" / "second").read_text() == "whole"


def test_the_job_of_a_killed_launcher_is_followed_by_the_next(tmp_path: Path) -> None:
    first = launch(tmp_path / "dst", 3)
    kill(first)
    assert not (tmp_path / "dst").exists()
    assert fill(tmp_path / "dst") == f"{first.pid}"
    assert (tmp_path / "dst" / "second").exists() and hidden(tmp_path) == []


def test_a_job_that_ended_after_its_launcher_was_killed_is_used(tmp_path: Path) -> None:
    first = launch(tmp_path / "dst", 1)
    kill(first)
    wait_for(lambda: state_of_job(tmp_path / f"{first.pid}") is JobState.COMPLETED)
    start = time.monotonic()
    assert fill(tmp_path / "dst", seconds="100") == f"{first.pid}"
    assert time.monotonic() - start < 50


def test_a_killed_launchers_job_that_makes_something_else_is_ended(tmp_path: Path) -> None:
    first = launch(tmp_path / "dst", 100)
    kill(first)
    assert fill(tmp_path / "dst", made_from="b") == f"{os.getpid()}"
    assert state_of_job(tmp_path / f"{first.pid}") is JobState.CANCELLED
    assert hidden(tmp_path) == []


def test_a_launcher_killed_before_its_job_began_is_nobody(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), filling(tmp_path / "dst", "a", "fill", tmp_path / "job", LOCAL):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    place = tmp_path / ".dst.filling"
    place.mkdir()
    (place / "out-0").mkdir()
    (place / "out-0" / "left").write_text("half")
    fill(tmp_path / "dst")
    assert sorted(path.name for path in (tmp_path / "dst").iterdir()) == ["first", "second"]
