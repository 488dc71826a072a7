"""Claims about reading metrics."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.errors import DataError
from nemotron_rl.report.metrics import MetricsTail, read_metrics

steps = st.lists(st.dictionaries(st.text(min_size=1), st.floats(allow_nan=False)), max_size=6)


@given(steps, st.data())
def test_a_file_cut_anywhere_gives_its_complete_lines(tmp_path_factory, steps, data):
    path = tmp_path_factory.mktemp("metrics") / "metrics.jsonl"
    text = "".join(json.dumps(step) + "\n" for step in steps).encode()
    cut = data.draw(st.integers(0, len(text)))
    path.write_bytes(text[:cut])
    tail = MetricsTail(path)
    first = tail.new()
    assert first == steps[: text[:cut].count(b"\n")]
    path.write_bytes(text)
    assert first + tail.new() == steps
    assert tail.new() == []


def test_a_step_written_again_counts_as_last_written(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0, "a": 1}\n{"step": 1, "a": 2}\n{"step": 1, "a": 3}\n{"step": 2, "a": NaN}\n{"st')
    read = read_metrics(path)
    assert [step["step"] for step in read] == [0, 1, 2]
    assert read[1]["a"] == 3 and math.isnan(read[2]["a"])


def test_a_job_that_resumes_with_a_new_file_is_followed_from_where_it_was(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0}\n{"step": 1}\n{"step": 2}\n')
    tail = MetricsTail(path)
    assert [step["step"] for step in tail.new()] == [0, 1, 2]
    (tmp_path / "new").write_text('{"step": 0, "longer": 1}\n{"step": 1, "longer": 1}\n')
    (tmp_path / "new").replace(path)
    assert tail.new() == []
    with path.open("a") as file:
        file.write('{"step": 2}\n{"step": 3}\n')
    assert tail.new() == [{"step": 3}]


def test_a_file_that_was_cut_is_followed_from_where_it_was(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0}\n{"step": 1}\n')
    tail = MetricsTail(path)
    assert len(tail.new()) == 2
    path.write_text('{"step": 0}\n')
    assert tail.new() == []
    path.write_text('{"step": 0}\n{"step": 1}\n{"step": 2}\n')
    assert tail.new() == [{"step": 2}]


@pytest.mark.parametrize("line", ["nope", "[1]", '{"step": "x"}'])
def test_a_broken_complete_line_is_named(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 0}}\n{line}\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl, line 2"):
        read_metrics(path)


def test_a_missing_file_is_an_error_to_read_and_nothing_to_follow(tmp_path):
    assert MetricsTail(tmp_path / "absent").new() == []
    with pytest.raises(DataError, match="no metrics at"):
        read_metrics(tmp_path / "absent")
