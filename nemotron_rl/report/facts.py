"""The figures of a run that its summary shows, taken from a RunReport. Pure; missing figures are None."""

from __future__ import annotations

from dataclasses import dataclass

from nemotron_rl.gates import measures
from nemotron_rl.report import format as fmt
from nemotron_rl.report.run_report import RunReport


@dataclass(frozen=True)
class Figure:
    """One line of the summary."""

    name: str
    value: str
    """With its unit."""


def key_figures(report: RunReport) -> list[Figure]:
    """What a reader wants to know first, in the order of a training step."""
    metrics = report.metrics
    return [
        Figure("reward", _reward(report)),
        Figure("log-prob difference", _logprob(report)),
        Figure("tensors compared", _tensors(report)),
        Figure("MTP loss", _first_last(report, "train/mtp_loss", "nats/token")),
        Figure("time per step", fmt.seconds(_mean(report, "time/step_s"))),
        Figure("peak memory per rank", _gib(measures.largest(metrics, "memory/peak_rss_gib"))),
    ]


def _reward(report: RunReport) -> str:
    rewards = measures.reward_before_after(report.metrics)
    if rewards is None:
        return "–"
    gain = fmt.number(measures.reward_gain(report.metrics))
    return f"{rewards[0]:.3f} → {rewards[1]:.3f}  (x{gain})"


def _logprob(report: RunReport) -> str:
    worst = measures.largest(report.metrics, "logprob/abs_diff_max")
    p99 = measures.largest(report.metrics, "logprob/abs_diff_p99")
    return "–" if worst is None else f"max {fmt.number(worst)}, p99 {fmt.number(p99)} nats"


def _tensors(report: RunReport) -> str:
    each = measures.series(report.metrics, "sync/tensors")
    mismatched = measures.total(report.metrics, "sync/mismatched")
    if each is None or mismatched is None:
        return "–"
    return f"{each[-1]:.0f} in each of {len(each)} pushes, {mismatched:.0f} differ"


def _first_last(report: RunReport, name: str, unit: str) -> str:
    values = [step[name] for step in report.metrics if name in step]
    return f"{fmt.number(values[0])} → {fmt.number(values[-1])} {unit}" if values else "–"


def _mean(report: RunReport, name: str) -> float | None:
    values = measures.series(report.metrics, name)
    return sum(values) / len(values) if values else None


def _gib(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} GiB"
