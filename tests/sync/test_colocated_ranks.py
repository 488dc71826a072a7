"""Pushes from real trainers on 2 and 4 ranks, at every kind of split, to engines of other splits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sync.colocated_program import CASES

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def seen(six_layers: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """By case what each rank saw."""
    out = tmp_path_factory.mktemp("colocated")
    argv = [sys.executable, "-m", "tests.sync.colocated_program", str(six_layers), str(out)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    return {name: json.loads((out / f"{name}.json").read_text()) for name in CASES}


@pytest.mark.parametrize("case", CASES)
def test_every_engine_holds_the_export_after_every_push(case: str, seen: dict[str, list[dict[str, Any]]]) -> None:
    assert len(seen[case]) == CASES[case][0].world_size
    for rank in seen[case]:
        assert rank["wrong"] == []
        assert rank["version"] == [0, 1, 2]


@pytest.mark.parametrize("case", CASES)
def test_only_what_a_rank_lacks_comes_from_others(case: str, seen: dict[str, list[dict[str, Any]]]) -> None:
    parallel, engine_ranks = CASES[case]
    everything_is_there = parallel.tp == parallel.pp == 1 and (parallel.ep == engine_ranks or parallel.ep == 1)
    for rank in seen[case]:
        assert (rank["from others"] == 0) == (rank["rounds"] == 0) == everything_is_there
        assert rank["rounds"] != 1


@pytest.mark.parametrize("case", CASES)
def test_a_changed_element_on_one_rank_is_told_on_all(case: str, seen: dict[str, list[dict[str, Any]]]) -> None:
    said = {rank["said"] for rank in seen[case]}
    assert len(said) == 1
    last = len(seen[case]) - 1
    expected = f"weight version 7: 1 of {seen[case][last]['tensors']} tensors differ between trainer and engine"
    assert said.pop().startswith(f"{expected} on rank {last}; backbone.norm_f.weight first differs at [3]: sent ")
