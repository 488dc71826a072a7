"""Claims about generated prompts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.config.data import ArithmeticSettings, carries
from nemotron_rl.data.arithmetic import generate_arithmetic
from nemotron_rl.errors import SettingsError

settings = st.builds(
    ArithmeticSettings,
    max_left=st.integers(1, 30),
    max_right=st.integers(1, 12),
    operators=st.lists(st.sampled_from("+-"), min_size=1, max_size=2, unique=True),
    carry=st.booleans(),
)


def questions(prompts):
    return [prompt.messages[0].content for prompt in prompts]


@given(st.integers(0, 1000), settings, st.data())
def test_the_two_sets_share_nothing_and_miss_nothing(seed, settings, data):
    held_out = data.draw(st.integers(1, len(settings.problems) - 1))
    train, evaluation = generate_arithmetic(seed, held_out, settings)
    assert len(evaluation) == held_out
    assert len({*questions(train), *questions(evaluation)}) == len(train) + len(evaluation) == len(settings.problems)
    assert [prompt.index for prompt in train] == list(range(len(train)))


@given(st.integers(0, 1000), settings)
def test_every_label_is_what_python_says(seed, settings):
    for prompt in generate_arithmetic(seed, 1, settings)[0]:
        assert prompt.label == str(eval(prompt.messages[0].content.removesuffix("=")))


@given(st.integers(0, 999), st.integers(0, 999), st.sampled_from("+-"))
def test_a_carry_is_what_column_arithmetic_says(left, right, operator):
    place, expected = 1, False
    while place <= max(left, right):
        a, b = left // place % 10, right // place % 10
        expected |= a + b > 9 if operator == "+" else a < b
        place *= 10
    assert carries(left, operator, right) == expected


def test_the_split_depends_on_the_seed_alone():
    assert generate_arithmetic(1, 20) == generate_arithmetic(1, 20) != generate_arithmetic(2, 20)
    assert questions(generate_arithmetic(0, 3)[1]) == ["72+1=", "1+7=", "90+8="]


def test_holding_out_everything_is_refused():
    with pytest.raises(SettingsError, match="hold out at most 549"):
        generate_arithmetic(0, 550)
