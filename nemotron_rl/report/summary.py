"""The end of a run in the terminal: verdict, gates, key figures, accuracy, time per stage, where things are."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from nemotron_rl.evaluate.scores import Evaluation
from nemotron_rl.gates.verdict import GateResult, Verdict
from nemotron_rl.report import format as fmt
from nemotron_rl.report.facts import key_figures
from nemotron_rl.report.run_report import RunReport


def summary(report: RunReport) -> RenderableType:
    """The whole summary, about 40 lines for a run with every stage."""
    parts: list[RenderableType] = [headline(report), gate_table(report.verdict), figure_table(report)]
    if report.evaluation:
        parts.append(accuracy_table(report.evaluation))
    if report.stages:
        parts.append(stage_table(report))
    if report.artifacts:
        parts.append(artifact_table(report))
    return Group(*(Padding(part, (0, 0, 1, 0)) for part in parts))


def headline(report: RunReport) -> Panel:
    """Passed or failed, and what ran."""
    passed = report.verdict.passed
    colour = "green" if passed else "red"
    failed = ", ".join(gate.name for gate in report.verdict.failed) or "no gate was judged"
    verdict = "PASSED: every gate held" if passed else f"FAILED: {failed}"
    what = f"{report.settings.run_id} · {report.settings.source.uri} · {fmt.seconds(report.seconds)}"
    return Panel(Text.assemble((verdict, f"bold {colour}"), "\n", (what, "dim")), border_style=colour, expand=False)


def gate_table(verdict: Verdict) -> Table:
    """One row per gate."""
    table = light_table("Gates", "", "gate", "measured", "bound", "from")
    for gate in verdict.gates:
        mark, style = _mark(gate)
        bound = "–" if gate.bound is None else f"{_SIGN[gate.comparison]} {fmt.number(gate.bound)} {gate.unit}"
        table.add_row(
            Text(mark, style), gate.name, Text(fmt.number(gate.value), style), bound, Text(gate.detail, "dim")
        )
    return table


def figure_table(report: RunReport) -> Table:
    """The figures that a reader wants first."""
    table = light_table("Run", "", "")
    table.show_header = False
    for figure in key_figures(report):
        table.add_row(figure.name, figure.value)
    return table


def accuracy_table(evaluation: Evaluation) -> Table:
    """Base and trained checkpoint on held-out prompts."""
    table = light_table(
        "Accuracy on held-out prompts", "checkpoint", ">accuracy", "95% interval", ">correct", ">tokens/answer"
    )
    for name, score in evaluation.models.items():
        low, high = score.interval
        interval = f"{fmt.share(low)} – {fmt.share(high)}"
        correct = f"{score.correct} of {score.samples}"
        table.add_row(name, fmt.share(score.accuracy), interval, correct, f"{score.response_length_mean:.1f}")
    return table


def stage_table(report: RunReport) -> Table:
    """Time per stage, with a bar of its share."""
    table = light_table("Time per stage", "stage", ">time", "")
    longest = max((stage.seconds for stage in report.stages), default=0.0) or 1.0
    for stage in report.stages:
        if stage.cached:
            table.add_row(stage.name, fmt.seconds(stage.seconds), Text("from the store", "cyan"))
        else:
            table.add_row(
                stage.name, fmt.seconds(stage.seconds), Text("█" * round(24 * stage.seconds / longest), "blue")
            )
    return table


def artifact_table(report: RunReport) -> Table:
    """Where everything is; addresses are folded, never cut."""
    table = light_table("Artifacts", "", ">size", "")
    table.show_header = False
    table.columns[2].overflow = "fold"
    for artifact in report.artifacts:
        table.add_row(artifact.name, fmt.size(artifact.nbytes) if artifact.nbytes is not None else "", artifact.uri)
    return table


_SIGN = {"<=": "≤", ">=": "≥"}


def _mark(gate: GateResult) -> tuple[str, str]:
    if not gate.passed:
        return "✗", "bold red"
    return ("·", "dim") if gate.bound is None else ("✓", "green")


def light_table(title: str, *columns: str) -> Table:
    """A light table; a column whose name starts with `>` is right-aligned."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for column in columns:
        table.add_column(
            column.removeprefix(">"), justify="right" if column.startswith(">") else "left", header_style="dim"
        )
    return table
