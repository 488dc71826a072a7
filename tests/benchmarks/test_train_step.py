"""The pure parts of the comparison with TRL, and the comparison itself where TRL is installed."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import common, train_step
from benchmarks.grpo_step.side import Side
from benchmarks.grpo_step.work import FirstUpdate, Shape, Work, largest_difference, made_up_samples

SHAPE = Shape(6, prompt=(2, 4), response=(1, 3))


def gradients(*values: float) -> dict[str, np.ndarray[Any, Any]]:
    return {"a": np.array(values, dtype=np.float32), "b": np.ones((2, 2), dtype=np.float32)}


def test_samples_keep_the_bounds_and_have_a_log_prob_per_response_token() -> None:
    samples = made_up_samples(SHAPE, vocabulary=40)
    assert len(samples) == 6
    assert samples == made_up_samples(SHAPE, vocabulary=40) != made_up_samples(SHAPE, vocabulary=40, seed=1)
    for one in samples:
        assert 2 <= len(one.prompt) <= 4 and 1 <= len(one.response) == len(one.old_logprobs) <= 3
        assert all(12 <= token < 40 for token in one.prompt + one.response)
    assert len({len(one.prompt) for one in samples}) > 1 and SHAPE.longest == 7


def test_old_log_probs_lie_around_those_of_a_uniform_model() -> None:
    samples = made_up_samples(Shape(200, prompt=(1, 1), response=(5, 5)), vocabulary=512)
    ratios = [math.exp(-math.log(512) - value) for one in samples for value in one.old_logprobs]
    assert min(ratios) < 0.8 and max(ratios) > 1.28  # both clips bind
    assert sum(0.8 < ratio < 1.28 for ratio in ratios) > len(ratios) / 3


def test_tokens_of_the_work_are_counted_without_padding() -> None:
    samples = made_up_samples(SHAPE, vocabulary=40)
    work = Work(Path("start"), samples, micro_batch_size=2, threads=1)
    assert work.tokens == sum(len(one.prompt) + len(one.response) for one in samples)
    assert train_step.rate(work, [2.0, 1.0, 4.0]) == common.figure(
        [work.tokens / 2, float(work.tokens), work.tokens / 4], "tokens/s"
    )


def test_the_largest_difference_is_relative_to_each_tensors_own_size() -> None:
    assert largest_difference(gradients(1.0, -4.0), gradients(1.0, -4.0)) == 0.0
    assert largest_difference(gradients(1.5, -4.0), gradients(1.0, -4.0)) == pytest.approx(0.125)
    small = {name: value / 1e6 for name, value in gradients(1.0, -4.0).items()}
    assert largest_difference(gradients(0.0, 0.0) | {"b": small["b"]}, small) == pytest.approx(1.0)


def test_gradients_that_are_missing_or_nothing_are_no_agreement() -> None:
    with pytest.raises(ValueError, match=r"different tensors: \['b'\]"):
        largest_difference({"a": np.ones(2)}, gradients(1.0))
    with pytest.raises(ValueError, match="a has no gradient"):
        largest_difference(gradients(0.0), gradients(0.0))
    assert math.isnan(largest_difference(gradients(math.nan), gradients(1.0)))


def a_side(link: Any, loss: float) -> None:
    if loss < 0:
        raise SystemExit("no such loss")
    link.send(FirstUpdate(loss, {}))
    for request in iter(link.recv, "stop"):
        link.send(float(len(request)))


def test_a_side_answers_from_a_process_of_its_own_and_ends(tmp_path: Path) -> None:
    with Side(tmp_path / "log", a_side, 0.5) as side:
        assert side.first == FirstUpdate(0.5, {})
        assert (side.seconds(), side.seconds("logprobs")) == (6.0, 8.0)
    assert side._process.exitcode == 0


def test_a_side_that_ends_says_what_it_printed(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="a side has ended: no such loss"):
        Side(tmp_path / "log", a_side, -1.0)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("trl") is None, reason="TRL is not installed: make bench")
def test_a_quick_run_agrees_with_trl(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.train_step", "--quick", "--results", str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"HF_HUB_OFFLINE": "1"}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    goals = json.loads((tmp_path / "train_step-cpu.json").read_text())["goals"]
    assert goals["short: relative difference of the loss"]["met"]
    assert goals["short: largest relative difference of a gradient"]["met"]
