from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.checkpoint import strict_json
from nemotron_rl.checkpoint.strict_json import parse_object, shown
from nemotron_rl.errors import CheckpointError

texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=20,
)


@given(st.dictionaries(texts, values), st.booleans())
def test_what_is_sound_is_read(value: dict[str, object], ascii_only: bool) -> None:
    assert parse_object(json.dumps(value, ensure_ascii=ascii_only).encode(), "file") == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"[]", "not a JSON object, but list"),
        (b"{", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b'\xef\xbb\xbf{"a": 1}', "BOM"),
        (b'{"a": ' + b"9" * 5000 + b"}", "thousands of digits"),
        (b'{"a": ' + b"[" * 100_000, "64 levels"),
        (b'{"a": ' + b"[" * 64 + b"]" * 64 + b"}", "64 levels"),
        (b'{"a": {"b": 1, "b": 2}}', "'b' occurs twice"),
        (rb'{"a": "\ud800"}', r"'\\ud800', half of a character"),
        (rb'{"\uDFFF": 1}', r"'\\udfff'"),
    ],
)
def test_what_is_not_is_refused_by_file(text: bytes, says: str) -> None:
    with pytest.raises(CheckpointError, match=says) as refused:
        parse_object(text, "some/config.json")
    assert str(refused.value).startswith("some/config.json: ")


def test_whole_characters_beyond_16_bits_are_text() -> None:
    assert parse_object(rb'{"a": "\ud83e\udd16"}', "file") == {"a": "🤖"}


def test_published_configs_have_infinity() -> None:
    assert parse_object(b'{"time_step_limit": [0.0, Infinity]}', "file")["time_step_limit"][1] == float("inf")


def test_text_that_would_take_much_memory_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict_json, "MOST_VALUES", 1000)
    with pytest.raises(CheckpointError, match="more than 1,000 values"):
        parse_object(b'{"a": [' + b"[]," * 1000 + b"[]]}", "file")


@given(values)
def test_what_is_shown_is_short_and_on_one_line(value: object) -> None:
    assert len(shown(value)) < 5000 and shown(value).isprintable()
    assert shown("a\n\x1b[2J") == r"'a\n\x1b[2J'"
