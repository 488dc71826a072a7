"""Every variant of the optimizer on two data-parallel ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("optimizer_program.py")
VARIANTS = ("plain-fp32", "distributed-fp32", "plain-bf16", "distributed-bf16", "scaled-fp32")


@pytest.fixture(scope="module")
def seen(six_layers: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    out = tmp_path_factory.mktemp("optimizer") / "seen.json"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environ = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROGRAM.parents[2])}
    done = subprocess.run(
        [*launcher, str(PROGRAM), str(six_layers), str(out)], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return dict(json.loads(out.read_text()))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_step_at_learning_rate_zero_leaves_the_loaded_weights(seen: Any, variant: str) -> None:
    assert seen[variant]["lr"][0] == 0.0
    assert seen[variant]["unchanged_at_lr_zero"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_learning_rate_warms_up_and_decays(seen: Any, variant: str) -> None:
    assert seen[variant]["lr"] == pytest.approx([0, 5e-4, 1e-3, 8.5355e-4, 5e-4, 1.4645e-4], rel=1e-4)


def test_a_distributed_optimizer_takes_the_same_steps_with_half_the_masters(seen: Any) -> None:
    for dtype in ("fp32", "bf16"):
        assert seen[f"distributed-{dtype}"]["weights"] == seen[f"plain-{dtype}"]["weights"]
    assert seen["distributed-fp32"]["masters"] == pytest.approx(seen["plain-fp32"]["masters"] / 2, rel=0.02)


def test_groups_have_learning_rates_of_their_own_and_zero_freezes_one(seen: Any) -> None:
    moved = seen["scaled-fp32"]["moved"]
    assert moved == {
        "mtp": [False],
        "router": [True],
        "experts": [False],
        "mamba": [True],
        "embeddings": [False],
        "None": [True],
    }
    assert seen["scaled-fp32"]["group_lrs"] == pytest.approx([0.0, 2.5e-4, 5e-4, 1e-3])
    assert seen["plain-fp32"]["group_lrs"] == pytest.approx([5e-4])


@pytest.mark.parametrize("variant", VARIANTS)
def test_schedule_and_adam_continue_at_a_step(seen: Any, variant: str) -> None:
    assert seen[variant]["adam_steps"] == [1.0]
