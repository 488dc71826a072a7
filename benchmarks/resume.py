"""Kills a 12-step training run on 2 ranks at random points, resumes it each time, and compares with one left alone.

    python -m benchmarks.resume [--points 20] [--quick]

Each point is a run of its own: kill -9 of all ranks or of one, at a moment within a random step, while a checkpoint is
written, or while the result is exported; then the same job is started again and must end with the same bits: exported
weights, the last checkpoint's weights and optimizer state, the random states, and all metrics but time and memory.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import common
from benchmarks.common import Figure
from tests.jobs.killing import Point, Setup, killed_and_resumed, outcome, prepare
from tests.jobs.ranks import Ranks, rank_server

STEPS = 12
POINTS = 20
QUICK_POINTS = 2


def points(count: int, seed: int = 0) -> list[Point]:
    """Seeded points: a quarter within saves, a quarter within the export, the rest anywhere within steps."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        phase = ("save", "export", "step", "step")[number % 4]
        victims = draw.choice([(0, 1), (0,), (1,)]) if number % 2 else (0, 1)
        delay_s = draw.random() * (0.05 if phase == "export" else 1.0)
        found.append(Point(phase, draw.randrange(1, STEPS), delay_s, victims))
    return found


def main() -> int:
    """Measure and write the result; 1 when a point made a difference."""
    parser = common.parser(__doc__)
    parser.add_argument("--points", type=int, default=POINTS, help="how many kills")
    arguments = parser.parse_args()
    options = common.options_of(arguments)
    chosen = points(QUICK_POINTS if options.quick else arguments.points)
    figures: dict[str, Figure] = {}
    identical = 0
    with tempfile.TemporaryDirectory(prefix="resume-") as folder, rank_server(Path(folder) / "server.log") as ranks:
        setup = prepare(Path(folder), ranks, steps=STEPS)
        want = outcome(setup.run_alone(ranks))
        for number, point in enumerate(chosen, 1):
            same, resumed = _measure(setup, ranks, number, point, want)
            identical += same
            figures[f"{number}: {described(point)}; resumed after"] = Figure(value=resumed, unit="steps")
            print(f"{number}/{len(chosen)} {described(point)}: {'identical' if same else 'DIFFERENT'}", flush=True)
    goals = {
        "kill points": common.at_least(len(chosen), POINTS),
        "points that changed a bit": common.at_most(len(chosen) - identical, 0),
    }
    return common.finish(options, "resume", common.cpu(), figures, goals)


def described(point: Point) -> str:
    """A point in words."""
    who = "both ranks" if len(point.victims) > 1 else f"rank {point.victims[0]}"
    when = {
        "save": f"in the save after step {point.step}",
        "export": f"{point.delay_s * 1000:.0f} ms into the export",
        "step": f"{point.delay_s:.2f} s after step {point.step}",
    }
    return f"{who} {when[point.phase]}"


def _measure(setup: Setup, ranks: Ranks, number: int, point: Point, want: dict[str, Any]) -> tuple[bool, int]:
    """Whether a run killed at the point ends with the same bits, and the step that it resumed after."""
    run, resumed = killed_and_resumed(setup, ranks, f"point-{number}", point)
    same = outcome(run) == want
    shutil.rmtree(run)
    return same, resumed


if __name__ == "__main__":
    sys.exit(main())
