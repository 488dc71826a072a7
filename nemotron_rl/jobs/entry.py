"""How every job starts: its request from the command line, its failures to `error.json` beside the request."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path

from nemotron_rl.cluster.failure import report_failure
from nemotron_rl.errors import NemotronRLError
from nemotron_rl.jobs.requests import Request


def run[R: Request](kind: type[R], job: Callable[[R], None]) -> None:
    """Run `job` with the request that the command line names; ends the process with the error's exit code."""
    if len(sys.argv) != 2:
        sys.exit(f"usage: python -m {job.__module__} REQUEST.json")
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("nemotron_rl").setLevel(logging.INFO)
    path = Path(sys.argv[1])
    try:
        with report_failure(path.parent):
            job(kind.read(path))
    except NemotronRLError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
