"""The benchmark of slice on a checkpoint of 140 MB: what it says about bytes and memory does not depend on speed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import common, slice
from nemotron_rl.checkpoint.layout import CheckpointFolder


@pytest.mark.slow
def test_bytes_and_memory_of_a_slice_from_a_hub(tmp_path: Path) -> None:
    source = slice.make_checkpoint(tmp_path / "source", experts=2, quick=True)
    assert len(CheckpointFolder.open(source).pattern.main) == slice.DEPTH
    local = slice.slice_apart(str(source), tmp_path / "slice")
    assert 0 < local.peak_bytes < slice.MOST_MEMORY and local.seconds > 0 and local.cpu_seconds > 0
    figures: dict[str, common.Figure] = {}
    goals: dict[str, common.Goal] = {}
    slice.measure_hub(source, tmp_path, figures, goals)
    assert all(goal.met for goal in goals.values())
    needed, sent = figures["bytes needed"].value, figures["bytes sent by the hub"].value
    assert needed < sent <= slice.MOST_FETCHED * needed + figures["config, index and headers"].value
    assert sorted(path.name for path in tmp_path.iterdir()) == ["slice", "source"]
