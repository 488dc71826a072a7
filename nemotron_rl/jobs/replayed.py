"""What a replay found. No torch here: the command line reads it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from nemotron_rl.config.base import Frozen

RESULT_FILE = "replay.json"
DETAILS = "details"
"""Folder of a run's kept steps, in the run's own."""


def kept_steps(run_dir: Path) -> list[int]:
    """Steps of which a run kept the details, ascending."""
    names = [path.name.removeprefix("step_") for path in (run_dir / DETAILS).glob("step_*")]
    return sorted(int(name) for name in names if name.isdigit())


class UpdateOutcome(Protocol):
    """What two updates are compared by: hexadecimal floats and checksums."""

    @property
    def loss(self) -> str: ...
    @property
    def grad_norm(self) -> str: ...
    @property
    def weights(self) -> Mapping[str, str]: ...


class Replayed(Frozen):
    """One step, then and now."""

    step: int
    loss_then: float
    loss_now: float
    grad_norm_then: float
    grad_norm_now: float
    tensors: int
    """Weights compared."""
    different: tuple[str, ...]
    """Weights that are not bit-equal after the update."""

    @classmethod
    def of(cls, step: int, then: UpdateOutcome, now: UpdateOutcome) -> Replayed:
        """Compare two outcomes."""
        names = sorted(then.weights.keys() | now.weights.keys())
        return cls(
            step=step,
            loss_then=float.fromhex(then.loss),
            loss_now=float.fromhex(now.loss),
            grad_norm_then=float.fromhex(then.grad_norm),
            grad_norm_now=float.fromhex(now.grad_norm),
            tensors=len(names),
            different=tuple(name for name in names if then.weights.get(name) != now.weights.get(name)),
        )

    @property
    def equal(self) -> bool:
        """Whether loss, gradient norm and all weights have the same bits."""
        same = self.loss_then == self.loss_now and self.grad_norm_then == self.grad_norm_now
        return same and not self.different


class Replays(Frozen):
    """All steps of a replay."""

    checkpoint: int
    """The checkpoint that it began from; 0: the starting weights."""
    steps: tuple[Replayed, ...]

    @classmethod
    def read(cls, folder: Path) -> Replays:
        """What the job wrote into its results."""
        return cls.model_validate_json((folder / RESULT_FILE).read_text())

    def text(self) -> str:
        """A line per step, and one per thing that differs."""
        source = f"checkpoint step_{self.checkpoint}" if self.checkpoint else "the starting weights"
        lines = [f"replayed from {source}"]
        for one in self.steps:
            verdict = "bit-equal" if one.equal else "DIFFERENT"
            lines.append(
                f"step {one.step}  {verdict}  loss {one.loss_now:.9g}  grad norm {one.grad_norm_now:.9g}  "
                f"{one.tensors - len(one.different)} of {one.tensors} weights equal"
            )
            if one.loss_then != one.loss_now:
                lines.append(f"  loss was {one.loss_then:.9g}")
            if one.grad_norm_then != one.grad_norm_now:
                lines.append(f"  grad norm was {one.grad_norm_then:.9g}")
            if one.different:
                lines.append(f"  the first weight that differs is {one.different[0]}")
        return "\n".join(lines)
