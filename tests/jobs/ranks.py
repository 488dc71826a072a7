"""Real training ranks that start in a second: forked from a process that has imported everything, instead of torchrun.

`python tests/jobs/ranks.py` is that process: it reads {"job", "request", "ranks", "port", "log"} lines, forks one rank
each and answers with their pids; on {"wait": [pids]} it answers with their exit codes. `Ranks` talks to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.ports import free_ports

ROOT = Path(__file__).parents[2]


class Ranks:
    """Starts training jobs and ends them early."""

    def __init__(self, server: subprocess.Popen[str]) -> None:
        self._server = server

    def start(
        self, request: Path, ranks: int, log: Path, job: str = "train", file_limit: int | None = None
    ) -> list[int]:
        """Start the ranks of `nemotron_rl.jobs.{job}`, which may write no file beyond so many bytes; their pids."""
        pids: list[int] = self._ask(
            job=job, request=str(request), ranks=ranks, port=free_ports(1)[0], log=str(log), file_limit=file_limit
        )
        return pids

    def wait(self, pids: Sequence[int]) -> list[int]:
        """Exit codes of ranks, in order; minus the signal's number when one ended them."""
        codes: list[int] = self._ask(wait=list(pids))
        return codes

    def run(self, request: Path, ranks: int, log: Path, job: str = "train") -> None:
        """A whole job, which must succeed."""
        codes = self.wait(self.start(request, ranks, log, job))
        assert codes == [0] * ranks, log.read_text()[-4000:]

    def kill(self, pids: Sequence[int], victims: Sequence[int], grace_s: float = 5.0) -> list[int]:
        """kill -9 some of a job's ranks at once, the others when they have not ended by themselves; exit codes."""
        for pid in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + grace_s
        while any(_runs(pid) for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.02)
        for pid in filter(_runs, pids):
            os.kill(pid, signal.SIGKILL)
        return self.wait(pids)

    def _ask(self, **command: Any) -> Any:
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps(command) + "\n")
        self._server.stdin.flush()
        return json.loads(self._server.stdout.readline())


@contextlib.contextmanager
def rank_server(log: Path) -> Iterator[Ranks]:
    """The server, for the length of the context."""
    environ = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with log.open("w") as errors:
        server = subprocess.Popen(
            [sys.executable, str(Path(__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environ,
            cwd=ROOT,
        )
        try:
            yield Ranks(server)
        finally:
            server.kill()
            server.wait()


def until(condition: Callable[[], bool], pids: Sequence[int], seconds: float = 120.0) -> bool:
    """Wait for a condition, looked at every 2 ms; False when a rank ended first."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the job did not get there")
        if not all(map(_runs, pids)):
            return condition()
        time.sleep(0.002)
    return True


def _runs(pid: int) -> bool:
    """Whether the process is there and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def serve() -> None:
    """Answer commands until stdin ends."""
    from nemotron_rl.jobs.requests import ReplayRequest, TrainRequest, WarmupRequest
    from nemotron_rl.megatron import backend

    backend.activate("cpu")
    import nemotron_rl.jobs.components
    import nemotron_rl.jobs.experience
    import nemotron_rl.megatron.checkpointing.saver
    import nemotron_rl.megatron.export  # noqa: F401
    from nemotron_rl.jobs import entry
    from nemotron_rl.jobs.replay import replay
    from nemotron_rl.jobs.train import train
    from nemotron_rl.jobs.warmup import warmup

    def start(job: str) -> None:
        if job == "train":
            entry.run(TrainRequest, train)
        elif job == "warmup":
            entry.run(WarmupRequest, warmup)
        else:
            entry.run(ReplayRequest, replay)

    for line in sys.stdin:
        command = json.loads(line)
        if "wait" in command:
            codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in command["wait"]]
            print(json.dumps(codes), file=_ANSWERS, flush=True)
            continue
        pids = []
        for rank in range(command["ranks"]):
            pid = os.fork()
            if pid == 0:
                _become_rank(rank, command)
                try:
                    start(command["job"])
                    sys.stdout.flush()
                    os._exit(0)
                except SystemExit as ending:
                    os._exit(int(ending.code or 0))
                except BaseException:
                    sys.excepthook(*sys.exc_info())
                    os._exit(1)
            pids.append(pid)
        print(json.dumps(pids), file=_ANSWERS, flush=True)


def _become_rank(rank: int, command: dict[str, Any]) -> None:
    log = os.open(command["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(command["ranks"]),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(command["port"]),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    if command["file_limit"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (command["file_limit"], command["file_limit"]))
    sys.argv = [command["job"], command["request"]]


if __name__ == "__main__":
    # Megatron prints to stdout while it is imported; answers go to the real one.
    _ANSWERS = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve()
