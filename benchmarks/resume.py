"""Kills a 12-step training run on 2 ranks at random points, resumes it each time, and compares with one left alone.

python -m benchmarks.resume [--points 20] [--first 0] [--work DIR] [--quick]

Each point is a run of its own: kill -9 of all ranks or of one, at a moment within a random step, while a checkpoint is
written, or while the result is exported; then the same job is started again and must end with the same bits: exported
weights, the last checkpoint's weights and optimizer state, the random states, and all metrics but time and memory.
Results go to benchmarks/results/resume-cpu.json; with --first, points are added to those of an earlier call.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import shutil
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nemotron_rl.store.versions import installed_versions
from tests.jobs.killing import Point, Setup, killed_and_resumed, outcome, prepare
from tests.jobs.ranks import rank_server

RESULTS = Path(__file__).parent / "results" / "resume-cpu.json"
STEPS = 12
POINTS = 20


@dataclass(frozen=True)
class Result:
    """What happened at one point."""

    point: Point
    resumed_after_step: int
    identical: bool
    seconds: float


def points(count: int, seed: int) -> list[Point]:
    """Seeded points: the first quarter within saves and the export, the rest anywhere within steps."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        phase = ("save", "export", "step", "step")[number % 4]
        victims = draw.choice([(0, 1), (0,), (1,)]) if number % 2 else (0, 1)
        found.append(
            Point(phase, draw.randrange(1, STEPS), draw.random() * (0.05 if phase == "export" else 1.0), victims)
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=POINTS)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    work = args.work or Path(tempfile.mkdtemp(prefix="resume-"))
    chosen = points(POINTS, args.seed)[args.first : args.first + (2 if args.quick else args.points)]
    results = json.loads(RESULTS.read_text())["points"] if args.first and RESULTS.exists() else []
    work.mkdir(parents=True, exist_ok=True)
    with rank_server(work / "server.log") as ranks:
        setup = prepare(work, ranks, steps=STEPS)
        want = outcome(setup.run_alone(ranks))
        for number, point in enumerate(chosen, args.first):
            results.append(asdict(measure(setup, ranks, number, point, want)))
            report(results)
    if args.work is None:
        shutil.rmtree(work)


def measure(setup: Setup, ranks: Any, number: int, point: Point, want: Any) -> Result:
    """Run, kill, resume, compare."""
    started = time.perf_counter()
    run, resumed = killed_and_resumed(setup, ranks, f"point-{number}", point)
    identical = outcome(run) == want
    if identical:
        shutil.rmtree(run)
    result = Result(point, resumed, identical, round(time.perf_counter() - started, 1))
    print(result, flush=True)
    return result


def report(results: list[dict[str, Any]]) -> None:
    """Write the figures."""
    identical = sum(result["identical"] for result in results)
    git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    text = {
        "name": "resume",
        "commit": git.stdout.strip(),
        "device": f"cpu {platform.machine()}, 2 ranks",
        "versions": installed_versions(),
        "command": "python -m benchmarks.resume",
        "figures": {
            "kill points": {"value": len(results), "unit": "points"},
            "bit-identical after resume": {"value": identical, "unit": "points"},
        },
        "goals": {
            "bit-identical after resume": {
                "value": identical,
                "at_least": POINTS,
                "met": identical >= POINTS,
            }
        },
        "points": results,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main()
