"""A dead process of an engine is noticed whatever the main thread does."""

from __future__ import annotations

import subprocess
import sys
import threading

import psutil
import pytest

from nemotron_rl.rollout.sglang.watch import EngineWatch

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def processes():
    started = [subprocess.Popen(SLEEP) for _ in range(2)]
    yield started
    for process in started:
        process.kill()
        process.wait()


def test_the_first_death_is_told_and_the_others_are_ended(processes: list[subprocess.Popen]) -> None:
    told: list[str] = []
    heard = threading.Event()
    watch = EngineWatch([psutil.Process(p.pid) for p in processes], lambda message: (told.append(message), heard.set()))
    processes[0].kill()
    assert heard.wait(20)
    assert f"(pid {processes[0].pid}) is gone" in told[0]
    assert processes[1].wait(timeout=20) == -9
    watch.stop()
    assert len(told) == 1


def test_a_watch_that_was_stopped_says_nothing(processes: list[subprocess.Popen]) -> None:
    told: list[str] = []
    watch = EngineWatch([psutil.Process(p.pid) for p in processes], told.append)
    watch.stop()
    processes[0].kill()
    processes[0].wait()
    assert not told
    assert processes[1].poll() is None


def test_a_process_waiting_for_ever_is_ended_with_a_message(tmp_path) -> None:
    program = (
        "import subprocess, sys, threading, psutil\n"
        "from nemotron_rl.rollout.sglang.watch import EngineWatch, end_process\n"
        "engine = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1)'])\n"
        "EngineWatch([psutil.Process(engine.pid)], end_process)\n"
        "threading.Event().wait()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "EngineDied: the engine's process" in done.stderr
