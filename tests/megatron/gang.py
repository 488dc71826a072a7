"""Runs a program on several gangs of ranks, one gang after the other, and imports the training stack only once.

The parent imports; each rank of a gang is a fork of it. Only for tests: importing takes longer than what they compute.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable

from tests.ports import free_ports


def run_gang(ranks: int, program: Callable[[], None]) -> None:
    """Call `program` on `ranks` ranks with the environment that torchrun would give them.

    Raises:
        RuntimeError: when a rank failed; its traceback is on stderr.
    """
    port = free_ports(1)[0]
    living = {_fork(rank, ranks, port, program): rank for rank in range(ranks)}
    first_failed: int | None = None
    while living:
        pid, status = os.wait()
        failed = living.pop(pid)
        if status and first_failed is None:
            first_failed = failed
            for other in living:  # they would wait for the failed one
                os.kill(other, signal.SIGKILL)
    if first_failed is not None:
        raise RuntimeError(f"rank {first_failed} of {ranks} failed")


def _fork(rank: int, ranks: int, port: int, program: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.environ |= {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        program()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
