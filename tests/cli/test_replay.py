"""What `replay` refuses before anything starts, and how it shows what it found."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from nemotron_rl.cli.app import app
from nemotron_rl.jobs.replayed import Replayed, Replays


def refused(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["replay", *arguments])
    assert done.exit_code == 2
    return " ".join(done.output.replace("│", " ").split())


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    assert "is not a run that has trained" in refused(str(tmp_path), "1")


def test_a_step_that_was_not_kept_is_refused_with_those_that_were(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "request.json").write_text("{}")
    assert "it kept no step; train with --dump-details" in refused(str(tmp_path), "1")
    for step in (3, 10, 9):
        (tmp_path / "details" / f"step_{step}").mkdir(parents=True)
    assert "it kept steps 3 to 10" in refused(str(tmp_path), "1")


def test_a_difference_is_shown_with_both_values_and_the_first_weight() -> None:
    same = {"loss_then": 0.5, "loss_now": 0.5, "grad_norm_then": 1.0, "grad_norm_now": 1.0, "tensors": 3}
    equal = Replayed(step=4, different=(), **same)
    other = Replayed(step=5, different=("b", "c"), **{**same, "loss_now": 0.25})
    lines = Replays(checkpoint=4, steps=(equal, other)).text().splitlines()
    assert lines == [
        "replayed from checkpoint step_4",
        "step 4  bit-equal  loss 0.5  grad norm 1  3 of 3 weights equal",
        "step 5  DIFFERENT  loss 0.25  grad norm 1  1 of 3 weights equal",
        "  loss was 0.5",
        "  the first weight that differs is b",
    ]
    assert (equal.equal, other.equal) == (True, False)
