"""What the stand-in jobs share: the request, the metrics, and the ways to go wrong that a test may ask for."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

from nemotron_rl.jobs.requests import Request

STEP = {
    "reward/mean": 0.5,
    "reward/std": 0.5,
    "logprob/abs_diff_max": 1e-6,
    "logprob/abs_diff_p99": 1e-7,
    "sync/tensors": 95,
    "sync/mismatched": 0,
    "train/mtp_loss": 1.0,
    "time/step_s": 0.01,
}


def started[R: Request](kind: type[R]) -> R:
    """The request. Adds one line to `starts` in the job's folder, so that a test can count."""
    request = kind.read(Path(sys.argv[1]))
    with (request.metrics.parent / "starts").open("a") as file:
        file.write(f"{os.environ.get('RANK', '0')}\n")
    assert not any(request.out.iterdir()), "a job begins with an empty folder"
    return request


def is_first() -> bool:
    return os.environ.get("RANK", "0") == "0"


def write_steps(request: Request, steps: int, seconds: float = 0.0) -> None:
    for step in range(steps):
        time.sleep(seconds)
        with request.metrics.open("a") as file:
            file.write(json.dumps({"step": step, **STEP}) + "\n")


def copy_checkpoint(start: Path, out: Path) -> None:
    shutil.copytree(start, out, dirs_exist_ok=True)
