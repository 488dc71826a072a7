"""What the Prefect UI shows of a run: progress, plots, tables, the report. Outside of a task run nothing is sent."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import cast
from uuid import UUID

from prefect.artifacts import (
    create_image_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.context import TaskRunContext

from nemotron_rl.gates.measures import Metrics
from nemotron_rl.report import format as fmt
from nemotron_rl.report.facts import key_figures
from nemotron_rl.report.markdown import markdown
from nemotron_rl.report.run_report import RunReport
from nemotron_rl.report.steps import step_text


class StepProgress:
    """A progress artifact that follows training, made at its first step."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._artifact: UUID | None = None

    def step(self, metrics: Metrics) -> None:
        """A step has ended."""
        if TaskRunContext.get() is None:
            return
        done = int(metrics["step"]) + 1
        share, text = 100.0 * min(1.0, done / self._steps), f"step {done} of {self._steps}  {step_text(metrics)}"
        if self._artifact is None:
            self._artifact = cast(UUID, create_progress_artifact(share, key="train-progress", description=text))
        else:
            update_progress_artifact(self._artifact, share, description=text)


def show_plot(key: str, png: bytes, description: str) -> None:
    """A picture, carried in the artifact itself."""
    if TaskRunContext.get() is not None:
        url = f"data:image/png;base64,{base64.b64encode(png).decode()}"
        create_image_artifact(image_url=url, key=key, description=description)


def show_steps(metrics: Sequence[Metrics]) -> None:
    """A table with one row per step."""
    if TaskRunContext.get() is not None:
        rows = [{name: fmt.number(value, 4) for name, value in step.items()} for step in metrics]
        create_table_artifact(table=rows, key="training-steps", description="Metrics of every training step")


def show_report(report: RunReport) -> None:
    """The gates and key figures as a table, and the whole report."""
    if TaskRunContext.get() is not None:
        create_table_artifact(
            table=result_rows(report), key="results", description=f"Results of {report.settings.run_id}"
        )
        create_markdown_artifact(markdown(report), key="report", description=f"Report of {report.settings.run_id}")


def result_rows(report: RunReport) -> list[dict[str, str]]:
    """One row per gate, then one per key figure."""
    gates = [
        {
            "what": gate.name,
            "value": fmt.number(gate.value),
            "bound": "" if gate.bound is None else f"{gate.comparison} {fmt.number(gate.bound)} {gate.unit}",
            "verdict": "reported" if gate.bound is None else ("passed" if gate.passed else "FAILED"),
        }
        for gate in report.verdict.gates
    ]
    figures = [
        {"what": figure.name, "value": figure.value, "bound": "", "verdict": ""} for figure in key_figures(report)
    ]
    return gates + figures
