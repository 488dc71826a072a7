"""Dynamic sampling on one and two real replicas against a loop over single prompts."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nemotron_rl.data.sampler import epoch_order
from tests.jobs.drawing_program import REPLICAS
from tests.oracles.dynamic_sampling import one_step

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
Steps = list[dict[str, Any]]


def case(n: int, batch: int, rounds: int, share: float, seed: int, parts: int = 1) -> dict[str, Any]:
    """Of n prompts this share is informative."""
    informative = random.Random(seed).sample(range(n), round(share * n))
    return {
        "n": n,
        "batch": batch,
        "seed": seed,
        "rounds": rounds,
        "parts": parts,
        "steps": 5,
        "informative": informative,
    }


CASES = {
    "off": case(40, 4, 0, 0.5, 1),
    "all-informative": case(40, 4, 3, 1.0, 2),
    "none-informative": case(40, 4, 3, 0.0, 3),
    "half": case(60, 8, 5, 0.5, 4),
    "few": case(200, 4, 40, 0.1, 5),
    "limit": case(60, 8, 1, 0.2, 6),
    "exhausted": case(9, 4, 50, 0.3, 7),
    "over-epochs": case(11, 4, 2, 0.4, 8),
    "in-mini-batches": case(60, 8, 5, 0.4, 10, parts=2),
    "in-mini-batches-once": case(60, 8, 0, 0.4, 11, parts=4),
    "smaller-than-a-batch": case(3, 4, 2, 0.4, 9),
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Steps]]:
    """By replicas and case."""
    folder = tmp_path_factory.mktemp("drawing")
    cases = folder / "cases.json"
    cases.write_text(json.dumps(list(CASES.values())))
    done = subprocess.run(
        [sys.executable, "-m", "tests.jobs.drawing_program", str(cases), str(folder / "out.json")],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = {replicas: json.loads((folder / f"out.{replicas}").read_text()) for replicas in REPLICAS}
    return {replicas: dict(zip(CASES, steps, strict=True)) for replicas, steps in found.items()}


@pytest.mark.parametrize("replicas", REPLICAS)
@pytest.mark.parametrize("name", CASES)
def test_every_step_trains_on_the_prompts_of_the_oracle(
    name: str, replicas: int, seen: dict[int, dict[str, Steps]]
) -> None:
    chosen, position = CASES[name], 0
    order = [index for epoch in range(200) for index in epoch_order(chosen["n"], chosen["seed"], epoch)]
    for step in seen[replicas][name]:
        prompts, position = one_step(order, position, chosen["batch"], chosen["rounds"], chosen["informative"])
        assert (in_order(step["prompts"], replicas, chosen["parts"]), step["position"]) == (prompts, position)
        assert step["per_replica"] == [2 * chosen["batch"] // replicas] * replicas
        assert step["whole"]


def in_order(prompts: list[int], replicas: int, parts: int) -> list[int]:
    """Prompts of all replicas as they were chosen: of each mini-batch a replica has a consecutive share."""
    shares = np.array(prompts).reshape(replicas, parts, -1)
    return list(shares.swapaxes(0, 1).reshape(-1).tolist())


@pytest.mark.parametrize("name", CASES)
def test_metrics_count_what_was_generated(name: str, seen: dict[int, dict[str, Steps]]) -> None:
    chosen = CASES[name]
    for one, two in zip(*(seen[replicas][name] for replicas in REPLICAS), strict=True):
        assert one["metrics"] == two["metrics"] and one["generated"] == two["generated"]
        assert one["metrics"]["rollout/prompts_drawn"] == len(one["generated"])
        assert one["metrics"]["rollout/rounds"] * chosen["batch"] == len(one["generated"])
        told_apart = sum(index in chosen["informative"] for index in one["generated"])
        assert one["metrics"]["rollout/prompts_informative"] == told_apart


def test_what_was_drawn_beyond_the_last_needed_prompt_comes_again(seen: dict[int, dict[str, Steps]]) -> None:
    steps = seen[2]["half"]
    assert any(step["metrics"]["rollout/prompts_informative"] > 8 for step in steps)
    for one, two in pairwise(steps):
        late = set(one["generated"]) & set(CASES["half"]["informative"]) - set(one["prompts"])
        assert late <= set(two["generated"])
