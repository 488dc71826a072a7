"""The page of measurements says what the results say."""

from __future__ import annotations

import pytest

from benchmarks import page
from benchmarks.common import Figure, Goal, Result


def test_the_page_in_the_repository_is_that_of_its_results():
    assert page.PAGE.read_text(encoding="utf-8") == page.page(page.read_results())


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1_787_760_000.0, "B/s", "1.79 GB/s"),
        (999.0, "B", "999 B"),
        (1_234_567.0, "tokens/s", "1,234,567 tokens/s"),
        (0.99049, "1", "0.99"),
        (0.0, "s", "0 s"),
        (4.1e-7, "1", "4.1e-07"),
    ],
)
def test_figures_are_short_and_have_their_unit(value, unit, text):
    assert page.with_unit(Figure(value=value, unit=unit)) == text


def test_a_goal_that_was_missed_is_told():
    goals = {"speed": Goal(value=1.9, at_least=2, met=False), "growth": Goal(value=1.0, at_most=1.1, met=True)}
    result = Result(name="n", commit="c", device="d", versions={}, command="x", figures={}, goals=goals)
    text = page.page([result])
    assert "| speed | 1.9 | ≥ 2 | **no** |" in text
    assert "| growth | 1 | ≤ 1.1 | yes |" in text
