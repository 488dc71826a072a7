"""Claims about rewards."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from nemotron_rl.errors import SettingsError
from nemotron_rl.reward.exact import exact
from nemotron_rl.reward.math import MathReward
from nemotron_rl.reward.registry import REWARDS, reward_function


@pytest.fixture(scope="module")
def math_reward():
    with MathReward() as reward:
        yield reward


@pytest.mark.parametrize(("response", "score"), [("7", 1), (" 7\n", 1), ("07", 0), ("7.", 0), ("", 0), ("17", 0)])
def test_exact_ignores_only_white_space_around(response, score):
    assert exact(response, "7") == score


@pytest.mark.parametrize(
    ("response", "label", "score"),
    [
        ("The answer is $\\frac{1}{2}$.", "0.5", 1),
        ("so x = \\boxed{34}", "34", 1),
        ("Answer: 34", "34", 1),
        ("Answer: 35", "34", 0),
        ("no idea", "34", 0),
        ("", "34", 0),
        ("\\boxed{(1, 2)}", "(1,2)", 1),
        ("\\boxed{2\\sqrt{3}}", "\\sqrt{12}", 1),
    ],
)
def test_math_compares_values(math_reward, response, label, score):
    assert math_reward(response, label) == score


def test_math_may_be_called_from_several_threads(math_reward):
    with ThreadPoolExecutor(4) as pool:
        scores = list(pool.map(lambda i: math_reward(f"\\boxed{{{i}}}", str(i // 2 * 2)), range(20)))
    assert scores == [1.0, 0.0] * 10


def test_an_answer_that_takes_too_long_scores_zero_and_the_next_is_judged():
    with MathReward(timeout_s=0.3) as reward:
        assert reward("7", "7") == 1.0
        os.kill(reward._worker.pid, signal.SIGSTOP)  # a worker that hangs
        started = time.monotonic()
        assert reward("7", "7") == 0.0
        assert time.monotonic() - started < 5
        assert reward("7", "7") == 1.0


def test_a_worker_that_died_is_replaced_and_none_is_left():
    reward = MathReward()
    assert reward("7", "7") == 1.0
    worker = reward._worker
    worker.kill()
    worker.wait()
    assert reward("7", "7") == 1.0
    worker = reward._worker
    reward.close()
    reward.close()
    assert worker.poll() is not None


def test_rewards_are_found_by_name():
    assert reward_function("exact") is exact
    assert set(REWARDS) == {"exact", "math"}
    with pytest.raises(SettingsError, match="did you mean exact"):
        reward_function("exakt")
