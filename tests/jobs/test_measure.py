"""What jobs write about themselves."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest

from nemotron_rl.errors import NemotronRLError
from nemotron_rl.jobs.measure import MetricsLog, Phases, peak_memory_gib


def test_phases_add_up_and_lie_within_the_step() -> None:
    phases = Phases()
    for _ in range(2):
        with phases("rollout"):
            time.sleep(0.01)
    measured = phases.metrics()
    assert 0.02 <= measured["time/rollout_s"] <= measured["time/step_s"]


def test_memory_is_what_is_in_use_after_each_phase() -> None:
    phases = Phases()
    with phases("full"):
        block = bytearray(300 << 20)
        block[::4096] = b"x" * len(block[::4096])
    with phases("empty"):
        del block
    memory = phases.memory()
    assert memory["memory/after_full_gib"] - memory["memory/after_empty_gib"] == pytest.approx(300 / 1024, abs=0.05)
    assert memory["memory/after_full_gib"] < memory["memory/total_gib"]


def test_every_step_is_one_line_of_json(tmp_path: Path) -> None:
    with MetricsLog(tmp_path / "metrics.jsonl") as log:
        log.write(0, {"reward/mean": 0.5})
        assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 0, "reward/mean": 0.5}
        log.write(1, {"reward/mean": 1.0})
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_is_none_stops_the_run_after_it_was_written(tmp_path: Path, value: float) -> None:
    with MetricsLog(tmp_path / "metrics.jsonl") as log, pytest.raises(NemotronRLError, match="step 3: train/loss"):
        log.write(3, {"train/loss": value, "train/lr": 1.0})
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["step"] == 3


def test_other_ranks_write_nothing_but_stop_too(tmp_path: Path) -> None:
    with MetricsLog(tmp_path / "metrics.jsonl", writes=False) as log:
        log.write(0, {"a": 1.0})
        with pytest.raises(NemotronRLError):
            log.write(1, {"a": math.nan})
    assert not (tmp_path / "metrics.jsonl").exists()


def test_peak_memory_is_that_of_this_process() -> None:
    before = peak_memory_gib()
    block = bytearray(300 << 20)
    block[::4096] = b"x" * len(block[::4096])
    assert 0.01 < before <= peak_memory_gib()
    assert peak_memory_gib() >= 0.29
