"""Claims about gates and verdicts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.config.judging import GateSettings
from nemotron_rl.errors import GateFailed
from nemotron_rl.evaluate.scores import Evaluation, score_samples
from nemotron_rl.gates.judge import GATES, judge
from nemotron_rl.gates.measures import memory_growth, reward_before_after, reward_gain
from nemotron_rl.gates.verdict import Verdict

BOUNDED = GateSettings(reward_gain_min=3, accuracy_gain_min=0.1, mtp_loss_max=6, memory_growth_max=0.1)
EVALUATION = Evaluation(models={"base": score_samples([0, 0], [1, 1]), "trained": score_samples([1, 0], [1, 1])})
GOOD = {
    "logprob/abs_diff_max": 5e-5,
    "logprob/abs_diff_p99": 1e-5,
    "sync/tensors": 95,
    "sync/mismatched": 0,
    "train/mtp_loss": 5.0,
    "memory/after_train_gib": 70.0,
    "memory/after_sync_gib": 71.0,
    "memory/total_gib": 140.0,
}


def run(rewards=(0.1, 0.2, 0.3, 0.4), **last):
    steps = [{"step": i, "reward/mean": reward, **GOOD} for i, reward in enumerate(rewards)]
    steps[-1] |= last
    return steps


def result(name, settings=BOUNDED, metrics=None, evaluation=EVALUATION):
    verdict = judge(settings, run() if metrics is None else metrics, evaluation)
    return next(gate for gate in verdict.gates if gate.name == name)


def test_a_good_run_passes_every_gate():
    verdict = judge(BOUNDED, run(), EVALUATION)
    assert verdict.passed and verdict.raise_if_failed() is verdict
    assert [gate.name for gate in verdict.gates] == list(GATES)


def test_every_bound_in_the_settings_has_a_gate():
    assert set(GateSettings.model_fields) | {"metrics_not_finite"} == set(GATES)


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("logprob_abs_diff_max", {"logprob/abs_diff_max": 2e-4}),
        ("logprob_abs_diff_p99", {"logprob/abs_diff_p99": 2e-4}),
        ("logprob_abs_diff_max", {"logprob/abs_diff_max": math.nan}),
        ("tensors_mismatched", {"sync/mismatched": 1}),
        ("metrics_not_finite", {"train/loss": math.inf}),
        ("reward_gain_min", {"reward/mean": 0.29}),
        ("mtp_loss_max", {"train/mtp_loss": 6.1}),
    ],
)
def test_one_bad_value_fails_its_gate(name, last):
    verdict = judge(BOUNDED, run(**last), EVALUATION)
    assert name in [gate.name for gate in verdict.failed]
    with pytest.raises(GateFailed, match=rf"(?s)of 8 gates failed.*{name}"):
        verdict.raise_if_failed()


def test_a_worse_trained_model_fails_the_accuracy_gate():
    swapped = Evaluation(models={"base": EVALUATION.models["trained"], "trained": EVALUATION.models["base"]})
    assert not result("accuracy_gain_min", evaluation=swapped).passed


@pytest.mark.parametrize("name", GATES)
def test_a_bounded_gate_without_its_figure_fails(name):
    empty = result(name, metrics=[], evaluation=None)
    assert empty.value is None and not empty.passed


@pytest.mark.parametrize("metric", [*GOOD, "reward/mean"])
def test_a_metric_that_the_last_step_lacks_fails_a_gate(metric):
    metrics = run()
    del metrics[-1][metric]
    assert not judge(BOUNDED, metrics, EVALUATION).passed


def test_a_gate_without_a_bound_reports_and_cannot_fail():
    gate = result("mtp_loss_max", GateSettings())
    assert gate.passed and gate.value == 5.0 and gate.bound is None
    assert result("mtp_loss_max", GateSettings(), metrics=[]).passed


def test_no_compared_tensor_is_no_proof():
    assert not result("tensors_mismatched", metrics=run(**{"sync/tensors": 0})[-1:]).passed


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_reward_before_and_after(rewards):
    before, after = reward_before_after([{"reward/mean": reward} for reward in rewards])
    quarter = [reward for i, reward in enumerate(rewards) if i >= len(rewards) - (len(rewards) + 3) // 4]
    assert before == rewards[0] and after == pytest.approx(sum(quarter) / len(quarter))


def growing(values, phase="train"):
    return [{**step, f"memory/after_{phase}_gib": value} for step, value in zip(run(), values, strict=True)]


@pytest.mark.parametrize("phase", ["train", "sync"])
@pytest.mark.parametrize("per_step", [0.13, 0.15])
def test_memory_may_grow_by_a_thousandth_per_step(phase, per_step):
    gate = result("memory_growth_max", metrics=growing([50, *(70 + n * per_step for n in range(3))], phase))
    assert gate.passed == (per_step < 0.14)
    assert gate.value == pytest.approx(100 * per_step / 140)
    assert f"after {phase}" in gate.detail


@pytest.mark.parametrize("values", [(1, 70, 70, 70), (70, 70, 90, 70), (70, 69, 68, 67)])
def test_caches_of_the_first_step_an_outlier_and_less_memory_are_no_growth(values):
    assert result("memory_growth_max", metrics=growing(values)).passed


def test_two_steps_cannot_show_growth():
    assert not result("memory_growth_max", metrics=run()[:2]).passed


@given(st.integers(5, 30), st.floats(-5, 5), st.data())
def test_a_trend_is_measured_through_an_outlier(steps, trend, data):
    used = [50 + trend * place for place in range(steps)]
    used[data.draw(st.integers(0, steps - 1))] += data.draw(st.floats(-100, 100))
    metrics = [{"memory/after_x_gib": value, "memory/total_gib": 100.0} for value in (0.0, *used)]
    phase, percent = memory_growth(metrics)
    assert phase == "x" and percent == pytest.approx(trend, abs=1e-9)


def test_a_reward_that_rises_from_zero_gains_without_limit():
    assert reward_gain([{"reward/mean": 0.0}, {"reward/mean": 0.1}]) == math.inf
    assert reward_gain([{"reward/mean": 0.0}, {"reward/mean": 0.0}]) == 1


def test_verdicts_survive_json_with_infinite_and_missing_values():
    verdict = judge(BOUNDED, run(rewards=(0.0, 0.5)), None)
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict
    assert next(gate for gate in verdict.gates if gate.name == "reward_gain_min").value == math.inf


def test_a_verdict_without_gates_has_not_passed():
    with pytest.raises(GateFailed, match="no gate was judged"):
        Verdict(gates=()).raise_if_failed()
