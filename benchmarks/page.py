"""`benchmarks/README.md` from the results: `python -m benchmarks.page` writes it, a test holds it to them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.common import RESULTS, Figure, Goal, Result
from nemotron_rl.report.format import scaled

PAGE = RESULTS.parent / "README.md"
INTRODUCTION = """# Measurements

Made by `python -m benchmarks.page` from [results](results), one file per benchmark and device. Every benchmark measures
ours and what it is compared with in turn, in one run; a figure is the median of its rounds. Goals that were not met
stay in the table.
"""
_SCALED = ("B", "B/s", "FLOP/s")


def page(results: Iterable[Result]) -> str:
    """The whole page, results in order of their name."""
    parts = [_section(result) for result in sorted(results, key=lambda one: (one.name, one.device))]
    return "\n".join([INTRODUCTION, *parts])


def read_results(folder: Path = RESULTS) -> list[Result]:
    """Every result in a folder."""
    return [Result.model_validate_json(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def _section(result: Result) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    lines = [
        f"## {result.name} on {result.device}",
        f"`{result.command}` at commit {result.commit}; {versions}.",
        "",
        *_goal_table(result.goals),
        *_figure_table(result.figures),
    ]
    return "\n".join(lines) + "\n"


def _goal_table(goals: Mapping[str, Goal]) -> list[str]:
    rows = [
        f"| {name} | {short(goal.value)} | {_bound(goal)} | {'yes' if goal.met else '**no**'} |"
        for name, goal in goals.items()
    ]
    return ["| goal | measured | wanted | met |", "| --- | --- | --- | --- |", *rows, ""] if rows else []


def _figure_table(figures: Mapping[str, Figure]) -> list[str]:
    rows = [f"| {name} | {with_unit(one)} | {len(one.rounds) or 1} |" for name, one in figures.items()]
    return ["| figure | value | rounds |", "| --- | --- | --- |", *rows]


def _bound(goal: Goal) -> str:
    return f"≥ {short(goal.at_least)}" if goal.at_least is not None else f"≤ {short(goal.at_most or 0.0)}"


def with_unit(one: Figure) -> str:
    """A figure with its unit: bytes and rates with a decimal prefix, ratios bare."""
    if one.unit == "1":
        return short(one.value)
    return scaled(one.value, one.unit) if one.unit in _SCALED else f"{short(one.value)} {one.unit}"


def short(value: float) -> str:
    """Three digits that matter; whole numbers whole."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def main() -> int:
    """Write the page; 0."""
    PAGE.write_text(page(read_results()), encoding="utf-8")
    print(f"written to {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
