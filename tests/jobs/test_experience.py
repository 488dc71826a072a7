"""Advantages and weights over two real data-parallel ranks, which hold different numbers of tokens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.oracles import rl_advantages as oracle

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("experience_program.py")
REWARDS = [1.0, 0.0, 0.0, 0.5, 1.0, 1.0, 0.0, 1.0]  # the third prompt's are all equal
GROUPS = [0, 0, 3, 3, 5, 5, 2, 2]
LENGTHS = [1, 5, 2, 2, 4, 3, 1, 3]
OVERRIDES: dict[str, dict[str, Any]] = {
    "default": {},
    "over_batch": {"algorithm.advantage": "reinforce_pp"},
    "kept": {"algorithm.advantage": "reinforce_pp_baseline", "algorithm.drop_equal_groups": True},
    "constant": {"algorithm.aggregation": "constant"},
    "mini_batches": {"train.updates_per_rollout": 2, "algorithm.drop_equal_groups": True},
    "sequence": {"algorithm.aggregation": "sequence", "algorithm.drop_equal_groups": True},
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[float]]]:
    folder = tmp_path_factory.mktemp("experience")
    request, out = folder / "request.json", folder / "out.json"
    common = {"rewards": REWARDS, "groups": GROUPS, "lengths": LENGTHS}
    request.write_text(json.dumps([common | {"overrides": overrides} for overrides in OVERRIDES.values()]))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environ = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROGRAM.parents[2])}
    done = subprocess.run(
        [*launcher, str(PROGRAM), str(request), str(out)], env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(zip(OVERRIDES, json.loads(out.read_text()), strict=True))


def test_statistics_are_those_of_all_ranks(seen: dict[str, dict[str, list[float]]]) -> None:
    assert seen["default"]["advantages"] == pytest.approx(oracle.ADVANTAGES["group_normalized"](REWARDS, GROUPS))
    assert seen["over_batch"]["advantages"] == pytest.approx(oracle.over_batch(REWARDS))


def test_statistics_leave_out_the_prompts_that_are_left_out(seen: dict[str, dict[str, list[float]]]) -> None:
    kept = [i for i, group in enumerate(GROUPS) if group != 5]
    want = oracle.over_batch(oracle.dr_grpo([REWARDS[i] for i in kept], [GROUPS[i] for i in kept]))
    assert [seen["kept"]["advantages"][i] for i in kept] == pytest.approx(want)


def test_weights_count_the_samples_and_tokens_of_all_ranks(seen: dict[str, dict[str, list[float]]]) -> None:
    tokens, kept_tokens = sum(LENGTHS), sum(LENGTHS) - 7
    kept = [group != 5 for group in GROUPS]
    assert seen["default"]["weight_sums"] == LENGTHS
    assert seen["kept"]["weight_sums"] == pytest.approx(
        [keep * length * tokens / kept_tokens for keep, length in zip(kept, LENGTHS, strict=True)]
    )
    assert seen["constant"]["weight_sums"] == pytest.approx([length * tokens / (8 * 5) for length in LENGTHS])
    assert seen["sequence"]["weight_sums"] == pytest.approx([keep * tokens / 6 for keep in kept])


def test_weights_of_a_mini_batch_count_its_own_tokens_on_all_ranks(seen: dict[str, dict[str, list[float]]]) -> None:
    # Mini-batches are the first and the last four samples; each rank has two of either.
    by_rank = [0, 1, 4, 5, 2, 3, 6, 7]
    kept = [group != 5 for group in GROUPS]
    want = []
    for i in by_rank:
        mine = range(4) if i < 4 else range(4, 8)
        tokens, kept_tokens = sum(LENGTHS[j] for j in mine), sum(LENGTHS[j] * kept[j] for j in mine)
        want.append(kept[i] * LENGTHS[i] * tokens / kept_tokens)
    assert seen["mini_batches"]["weight_sums"] == pytest.approx(want)
