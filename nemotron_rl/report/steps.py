"""One step's metrics as one line of text."""

from __future__ import annotations

from dataclasses import dataclass

from nemotron_rl.gates.measures import Metrics


@dataclass(frozen=True)
class Column:
    """A metric in a step's line."""

    metric: str
    label: str
    form: str
    """Format specification of a fixed width, so that the lines of a stage align."""
    unit: str = ""
    """What follows the number."""

    def text(self, value: float) -> str:
        """Label, number and unit."""
        return f"{self.label} {value:{self.form}}{self.unit}" if self.label else f"{value:{self.form}}{self.unit}"


COLUMNS = (
    Column("reward/mean", "reward", "5.3f"),
    Column("logprob/abs_diff_max", "|Δlogp| max", "7.1e"),
    Column("train/mtp_loss", "mtp", "6.3f"),
    Column("train/kl", "kl", "7.1e"),
    Column("train/entropy", "entropy", "6.3f"),
    Column("train/grad_norm", "grad", "7.2e"),
    Column("response/length_mean", "length", "5.1f"),
    Column("sync/mismatched", "differ", "2.0f"),
    Column("evaluate/accuracy", "accuracy", "5.3f"),
    Column("warmup/loss", "loss", "6.3f"),
    Column("warmup/grad_norm", "grad", "7.2e"),
    Column("warmup/lr", "lr", "7.1e"),
    Column("time/step_s", "", "6.2f", " s"),
)


def step_text(metrics: Metrics) -> str:
    """`reward 0.312  |Δlogp| max 3.1e-06  …`: the metrics that the step has, in a fixed order and width."""
    return "  ".join(column.text(metrics[column.metric]) for column in COLUMNS if column.metric in metrics)
