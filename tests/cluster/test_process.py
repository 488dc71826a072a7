"""A pid alone names nothing, and no process outlives the end of its tree."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import psutil

from nemotron_rl.cluster.process import ProcessId, end_all, tagged


def test_a_reused_pid_is_another_process() -> None:
    me = ProcessId.of(os.getpid())
    assert me is not None and me.alive()
    assert not replace(me, started=me.started - 1).alive()
    assert not replace(me, boot="another boot").alive()


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen((sys.executable, "-c", "input()"), stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    alive = ProcessId.of(child.pid)
    assert alive is not None
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and nobody collected it
    assert not alive.alive()
    child.communicate()
    assert ProcessId.of(child.pid) is None


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace() -> None:
    program = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
    environ = os.environ | {"NEMOTRON_RL_TEST_TAG": str(os.getpid())}
    with subprocess.Popen((sys.executable, "-c", program), stdout=subprocess.PIPE, env=environ) as child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        marked = tagged("NEMOTRON_RL_TEST_TAG", str(os.getpid()))
        assert marked == [psutil.Process(child.pid)]
        end_all(lambda: marked if child.poll() is None else [], grace_seconds=0.1)
        assert child.returncode == -9
