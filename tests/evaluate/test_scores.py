"""Claims about accuracy and its interval."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.errors import DataError
from nemotron_rl.evaluate.scores import Z_95, Evaluation, score_samples, wilson_interval


@given(st.integers(1, 500), st.data())
def test_the_interval_solves_wilsons_equation(samples, data):
    """Both ends p satisfy |share - p| = z sqrt(p (1 - p) / n), found here without the closed form."""
    correct = data.draw(st.integers(0, samples))
    low, high = wilson_interval(correct, samples)
    share = correct / samples
    assert 0 <= low <= share + 1e-12 and share - 1e-12 <= high <= 1
    for end in {low, high} - {0.0, 1.0}:
        assert abs(share - end) == pytest.approx(Z_95 * (end * (1 - end) / samples) ** 0.5, abs=1e-6)


def test_a_published_interval():
    """Newcombe, Statistics in Medicine 17 (1998), table I: 81 of 263, and 0 of 20."""
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)


def test_a_score_counts_correct_samples_and_averages_rewards(tmp_path):
    score = score_samples([1.0, 0.0, 0.5, 1.0], [2, 4, 4, 6])
    assert (score.accuracy, score.correct, score.samples, score.response_length_mean) == (0.625, 2, 4, 4.0)
    evaluation = Evaluation(models={"base": score})
    assert Evaluation.read(evaluation.write(tmp_path / "evaluation.json")) == evaluation


def test_a_broken_evaluation_file_is_named(tmp_path):
    (tmp_path / "evaluation.json").write_text('{"models": {"base": {}}}')
    for name in ("evaluation.json", "absent.json"):
        with pytest.raises(DataError, match=name):
            Evaluation.read(tmp_path / name)


def test_impossible_counts_are_refused():
    for correct, samples in [(0, 0), (2, 1), (-1, 3)]:
        with pytest.raises(ValueError, match="needs"):
            wilson_interval(correct, samples)
    with pytest.raises(ValueError, match="one length per reward"):
        score_samples([], [])
