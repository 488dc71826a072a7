"""Starting and ending of one real service: its process, its ports, and the proof that nothing of it is left."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from nemotron_rl.cluster.process import end_all, tagged

_TAG = "NEMOTRON_RL_TEST_SERVICE"


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Wait for a condition; AssertionError that names it when the time is over."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        time.sleep(0.05)


def listening(port: int) -> bool:
    """Whether anything accepts connections on this loopback port."""
    with socket.socket() as client:
        client.settimeout(1.0)
        return client.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def daemon(
    argv: Sequence[str],
    *,
    environ: Mapping[str, str],
    log: Path,
    ready: Callable[[], bool],
    ports: Sequence[int] = (),
    grace_seconds: float = 20.0,
    seconds: float = 60.0,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a foreground service until the block ends, then its whole process tree is ended and its ports are free.

    Raises AssertionError with the log's end when it dies or is not ready in time, or leaves a port open.
    """
    tag = uuid.uuid4().hex
    with log.open("ab") as out:
        process = subprocess.Popen(
            argv,
            env={**environ, _TAG: tag},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_until(lambda: process.poll() is not None or ready(), f"{argv[0]} ({log})", seconds)
        assert process.poll() is None, f"{argv[0]} ended with {process.returncode}:\n{tail(log)}"
        yield process
    finally:
        end_all(lambda: _living(process, tag), grace_seconds)
        process.wait()
    for port in ports:
        assert not listening(port), f"{argv[0]} left port {port} open"


def tail(log: Path, lines: int = 20) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""


def _living(process: subprocess.Popen[bytes], tag: str) -> list[psutil.Process]:
    """The service and everything that it started, found by the mark in their environment."""
    own = [psutil.Process(process.pid)] if process.poll() is None else []
    return own + [each for each in tagged(_TAG, tag) if each.pid not in (process.pid, os.getpid())]
