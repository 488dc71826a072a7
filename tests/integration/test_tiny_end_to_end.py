"""The main job as a user starts it: the real chain on two ranks, twice, from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nemotron_rl.evaluate.scores import Evaluation
from nemotron_rl.report.run_report import RunReport

pytestmark = [pytest.mark.slow, pytest.mark.integration]
SHORT = {
    "parallel.world_size": "2",
    "model.threads": "1",
    "warmup.steps": "6",
    "train.steps": "3",
    "algorithm.kl_coef": "0.01",
    "gates.reward_gain_min": "null",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("end-to-end")


def validate(folder: Path, run_id: str, **changes: str) -> subprocess.CompletedProcess[str]:
    settings = [word for key, value in {**SHORT, **changes}.items() for word in ("--set", f"{key}={value}")]
    command = [str(Path(sys.executable).with_name("nemotron-rl")), "validate", "--run-id", run_id, *settings]
    environ = os.environ | {"PREFECT_HOME": str(folder / "prefect"), "COLUMNS": "120"}
    return subprocess.run(
        [*command, "--output-dir", str(folder / "runs")], env=environ, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def first(folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "prefect").mkdir()
    return validate(folder, "first")


@pytest.fixture(scope="module")
def second(folder: Path, first: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """The same inputs again, held against a gate that they cannot keep."""
    return validate(folder, "second", **{"gates.reward_gain_min": "1000"})


def metrics(folder: Path, run_id: str, stage: str) -> list[dict[str, Any]]:
    """What the run measured, less what no two runs share."""
    lines = (folder / "runs" / run_id / stage / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not k.startswith(("time/", "memory/"))} for line in lines]


def test_the_first_run_passes_and_sums_up(first: subprocess.CompletedProcess[str], folder: Path) -> None:
    assert first.returncode == 0, first.stdout + first.stderr
    for expected in ("PASSED", "logprob_abs_diff_max", "Accuracy on held-out prompts", "Time per stage", "Artifacts"):
        assert expected in first.stdout
    report = RunReport.model_validate_json((folder / "runs" / "first" / "report.json").read_text())
    assert report.verdict.passed
    steps = metrics(folder, "first", "train")
    assert [step["step"] for step in steps] == [0, 1, 2]
    assert max(step["logprob/abs_diff_max"] for step in steps) <= 1e-4
    assert {step["sync/tensors"] for step in steps} == {95}
    assert all(step["train/mtp_loss"] > 0 and step["train/kl"] >= 0 for step in steps)


def test_warnings_of_megatron_and_torch_stay_in_the_jobs_log(
    first: subprocess.CompletedProcess[str], folder: Path
) -> None:
    shown = first.stdout + first.stderr
    assert "warn" not in shown.lower()
    assert any("arning" in log.read_text() for log in (folder / "runs" / "first" / "train").glob("job-*.log"))


def test_both_checkpoints_were_evaluated_on_the_held_out_prompts(
    first: subprocess.CompletedProcess[str], folder: Path
) -> None:
    report = RunReport.model_validate_json((folder / "runs" / "first" / "report.json").read_text())
    assert isinstance(report.evaluation, Evaluation)
    assert {name: score.samples for name, score in report.evaluation.models.items()} == {"base": 220, "trained": 220}


def test_the_second_run_takes_what_it_can_from_the_store(second: subprocess.CompletedProcess[str]) -> None:
    for stage in ("download", "prompts", "slice", "convert", "warmup"):
        assert any(stage in line and "store" in line for line in second.stdout.splitlines()), stage


def test_a_gate_that_fails_ends_with_exit_code_3_and_is_named(second: subprocess.CompletedProcess[str]) -> None:
    assert second.returncode == 3
    assert "reward_gain_min" in second.stderr


def test_two_runs_from_one_seed_measure_the_same_bit_for_bit(
    second: subprocess.CompletedProcess[str], folder: Path
) -> None:
    assert metrics(folder, "first", "train") == metrics(folder, "second", "train")
