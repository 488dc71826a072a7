"""What all benchmarks share: alternating rounds, the JSON result with its goals, and the command line.

    def main() -> int:
        options = common.parse(common.parser(__doc__))
        pair = common.alternate(common.timed(run_ours), common.timed(run_theirs), rounds=3)
        figures = {"ours": pair.ours_figure("s"), "theirs": pair.reference_figure("s")}
        goals = {"speed against theirs": common.at_least(1 / pair.ratio, 0.8)}
        return common.finish(options, "name", common.cpu(), figures, goals)

It measures nothing itself and imports no torch, unless a GPU is asked for by `gpu()`.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from nemotron_rl.config.base import Frozen
from nemotron_rl.store.versions import installed_versions

REPOSITORY = Path(__file__).parents[1]
RESULTS = REPOSITORY / "benchmarks" / "results"
QUICK_RESULTS = REPOSITORY / "build" / "benchmarks"
"""Smoke tests do not overwrite what the docs show; git ignores this folder."""
LEAST_ROUNDS = 3


class Figure(Frozen):
    """A measured number."""

    value: float
    unit: str
    """Such as `s`, `B`, `B/s`, `tokens/s` or `1` for a ratio."""
    rounds: tuple[float, ...] = ()
    """The single measurements whose median `value` is."""


class Goal(Frozen):
    """A bound that a figure has to keep: exactly one of `at_least` and `at_most` is set."""

    value: float
    at_least: float | None = None
    at_most: float | None = None
    met: bool


class Result(Frozen):
    """The content of `results/NAME-DEVICE.json`."""

    name: str
    commit: str
    """With `-dirty` when the working tree differed from it."""
    device: str
    """In words: model, cores or memory."""
    versions: Mapping[str, str]
    command: str
    figures: Mapping[str, Figure]
    goals: Mapping[str, Goal]


@dataclass(frozen=True)
class Device:
    """Where it was measured."""

    slug: str
    """In the result's file name, such as `cpu` or `h200`."""
    description: str


@dataclass(frozen=True)
class Options:
    """What every benchmark is told on its command line."""

    quick: bool
    """A smoke test: small, under a minute; its goals are shown but do not decide the exit code."""
    results: Path
    """Folder for the result."""
    commit: str
    command: str


@dataclass(frozen=True)
class Pair:
    """Measurements of ours and of the reference, taken in turn."""

    ours: tuple[float, ...]
    reference: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Median of ours over median of the reference: of seconds, below 1 means that ours is faster."""
        return median(self.ours) / median(self.reference)

    def ours_figure(self, unit: str) -> Figure:
        """The median of ours."""
        return figure(self.ours, unit)

    def reference_figure(self, unit: str) -> Figure:
        """The median of the reference."""
        return figure(self.reference, unit)


def alternate(ours: Callable[[], float], reference: Callable[[], float], rounds: int = LEAST_ROUNDS) -> Pair:
    """Measure ours and the reference in turn, so that a machine whose speed drifts is the same for both.

    Args:
        ours: Does it once and returns the measurement, such as seconds; see `timed`. Warm up before, if need be.
        reference: The same for what is compared with.
        rounds: At least 3. Every second round begins with the reference.

    Raises:
        ValueError: Too few rounds.
    """
    if rounds < LEAST_ROUNDS:
        raise ValueError(f"a median needs at least {LEAST_ROUNDS} rounds, not {rounds}")
    measured: dict[bool, list[float]] = {True: [], False: []}
    for number in range(rounds):
        for is_ours in (True, False) if number % 2 == 0 else (False, True):
            measured[is_ours].append(ours() if is_ours else reference())
    return Pair(tuple(measured[True]), tuple(measured[False]))


def timed(action: Callable[[], object]) -> Callable[[], float]:
    """`action` as a measurement of its wall time in seconds. On a GPU it has to synchronize before it returns."""

    def measure() -> float:
        began = time.perf_counter()
        action()
        return time.perf_counter() - began

    return measure


def figure(rounds: Sequence[float], unit: str) -> Figure:
    """The median of several measurements, which are kept."""
    return Figure(value=median(rounds), unit=unit, rounds=tuple(rounds))


def at_least(value: float, bound: float) -> Goal:
    """A goal that `value` has to reach; NaN does not."""
    return Goal(value=value, at_least=bound, met=value >= bound)


def at_most(value: float, bound: float) -> Goal:
    """A goal that `value` must not exceed; NaN does."""
    return Goal(value=value, at_most=bound, met=value <= bound)


def cpu() -> Device:
    """This machine's processor, and how many of its cores this process may use."""
    cores = len(os.sched_getaffinity(0))
    return Device("cpu", f"{_processor()}, {cores} {'core' if cores == 1 else 'cores'}")


def gpu(count: int = 1) -> Device:
    """The first GPU, `count` times; imports torch.

    Raises:
        RuntimeError: There is none.
    """
    import torch

    if torch.cuda.device_count() < count:
        raise RuntimeError(f"{count} GPUs are needed and {torch.cuda.device_count()} are there")
    name, memory = torch.cuda.get_device_name(0), torch.cuda.get_device_properties(0).total_memory
    slug = name.removeprefix("NVIDIA ").split()[0].lower()
    times = f"{count} × " if count > 1 else ""
    return Device(f"{slug}-x{count}" if count > 1 else slug, f"{times}{name}, {memory / 2**30:.0f} GiB")


def parser(description: str | None) -> argparse.ArgumentParser:
    """The flags that every benchmark has; add your own, and pass it to `parse`."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--quick", action="store_true", help="a smoke test of less than a minute")
    made.add_argument("--results", type=Path, metavar="DIR", help="folder for the result")
    made.add_argument("--commit", help="what is measured, where the working tree is not a git repository")
    return made


def options_of(arguments: argparse.Namespace) -> Options:
    """The shared flags out of all that were given."""
    default = QUICK_RESULTS if arguments.quick else RESULTS
    command = shlex.join(["python", "-m", f"benchmarks.{Path(sys.argv[0]).stem}", *_measured_flags(sys.argv[1:])])
    return Options(arguments.quick, arguments.results or default, arguments.commit or commit(), command)


def parse(parser: argparse.ArgumentParser) -> Options:
    """The options of a benchmark that has no flags of its own."""
    return options_of(parser.parse_args())


def _measured_flags(words: Sequence[str]) -> list[str]:
    """The command line without flags that say only where files lie on this machine, or what is measured."""
    kept: list[str] = []
    for word in words:
        value = word.partition("=")[2] if word.startswith("--") else word
        if value.startswith("/") or (kept and kept[-1] == "--commit"):
            if not word.startswith("--"):
                kept.pop()
            continue
        kept.append(word)
    return kept


def finish(
    options: Options, name: str, device: Device, figures: Mapping[str, Figure], goals: Mapping[str, Goal]
) -> int:
    """Write `NAME-DEVICE.json`, print it in short, and return the exit code: 1 when a goal of a full run is missed.

    Raises:
        ValueError: A figure or a goal is not a finite number, which JSON cannot hold: the measurement is broken.
    """
    values = [(key, item.value) for key, item in figures.items()]
    values += [(key, goal.value) for key, goal in goals.items()]
    for key, value in values:
        if not math.isfinite(value):
            raise ValueError(f"{name}: '{key}' is {value}")
    result = Result(
        name=name,
        commit=options.commit,
        device=device.description,
        versions=installed_versions(),
        command=options.command,
        figures=figures,
        goals=goals,
    )
    options.results.mkdir(parents=True, exist_ok=True)
    path = options.results / f"{name}-{device.slug}.json"
    path.write_text(result.model_dump_json(indent=1, exclude_none=True) + "\n", encoding="utf-8")
    print(summary(result), f"written to {path}", sep="\n")
    return 0 if options.quick or all(goal.met for goal in goals.values()) else 1


def summary(result: Result) -> str:
    """A line per figure and per goal."""
    lines = [f"{result.name} on {result.device}, {result.commit}"]
    lines += [f"  {label}: {item.value:,.6g} {item.unit}" for label, item in result.figures.items()]
    for label, goal in result.goals.items():
        bound = f"at least {goal.at_least:,g}" if goal.at_least is not None else f"at most {goal.at_most:,g}"
        lines.append(f"  {'met' if goal.met else 'MISSED'}: {label} is {goal.value:,.6g}, {bound} is wanted")
    return "\n".join(lines)


def commit() -> str:
    """The commit of the working tree, or `unknown` where git or its repository is missing."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head}-dirty" if changed else head


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.machine()
