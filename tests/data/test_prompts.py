"""Claims about prompt files."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.data.prompts import ROLES, Message, Prompt, iter_prompts, load_prompts, parse_prompt, write_prompts
from nemotron_rl.errors import DataError

GOOD = '{"prompt": [{"role": "user", "content": "3+4="}], "label": "7"}'
messages = st.builds(Message, role=st.sampled_from(ROLES), content=st.text())
prompt_lists = st.lists(st.tuples(st.lists(messages, min_size=1), st.text()), min_size=1).map(
    lambda rows: [Prompt(index=i, messages=tuple(m), label=label) for i, (m, label) in enumerate(rows)]
)


@given(prompt_lists)
def test_written_prompts_read_back_equal(tmp_path_factory, prompts):
    path = tmp_path_factory.mktemp("prompts") / "p.jsonl"
    assert load_prompts(write_prompts(path, prompts)) == prompts


def test_both_published_shapes_are_read(tmp_path):
    path = tmp_path / "p.jsonl"
    other = {"prompt": [{"role": "user", "content": "q"}], "reward_model": {"ground_truth": "34", "style": "rule"}}
    path.write_text(f"{GOOD}\n\n{json.dumps(other | {'data_source': 'x'})}\n")
    assert [(prompt.index, prompt.label) for prompt in load_prompts(path)] == [(0, "7"), (1, "34")]
    assert load_prompts(path)[0].chat() == [{"role": "user", "content": "3+4="}]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"prompt": [', "not valid JSON, column"),
        ("[1]", "expected a JSON object, got a list"),
        ('{"promt": [], "label": "7"}', "has no `prompt`, but `promt`"),
        ('{"prompt": [{"role": "user", "content": "q"}]}', "has no `label`; its keys are prompt"),
        ('{"prompt": "3+4=", "label": "7"}', "should be a list with at least one message, got text"),
        ('{"prompt": [], "label": "7"}', "got an empty list"),
        ('{"prompt": ["q"], "label": "7"}', "`prompt[0]` should be an object"),
        ('{"prompt": [{"role": "user"}], "label": "7"}', "`prompt[0]` should have a text `content`, got nothing"),
        ('{"prompt": [{"role": "usr", "content": "q"}], "label": "7"}', "has the role 'usr'"),
        ('{"prompt": [{"role": "user", "content": "q"}], "label": 7}', "the label should be text, got a number"),
        (
            '{"prompt": [{"role": "user", "content": "q"}], "reward_model": "x"}',
            "the label should be text, got nothing",
        ),
    ],
)
def test_a_broken_line_is_named_by_its_number(tmp_path, line, expected):
    path = tmp_path / "p.jsonl"
    path.write_text(f"{GOOD}\n\n{line}\n{GOOD}\n")
    with pytest.raises(DataError) as caught:
        load_prompts(path)
    assert f"{path}, line 3: " in str(caught.value) and expected in str(caught.value)


def test_prompts_stream_up_to_the_broken_line(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text(f"{GOOD}\n{GOOD}\nbroken")
    stream = iter_prompts(path)
    assert [next(stream).index, next(stream).index] == [0, 1]
    with pytest.raises(DataError, match="line 3"):
        next(stream)


def test_unreadable_files_are_explained(tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe")
    for name, expected in [("empty", "has no prompts"), ("binary", "line 1.*not UTF-8"), ("absent", "No such file")]:
        with pytest.raises(DataError, match=expected):
            load_prompts(tmp_path / f"{name}.jsonl")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_any_json_is_a_prompt_or_an_explained_error(value):
    with pytest.raises(ValueError, match=r"expected|has no|should"):
        parse_prompt(json.dumps(value), 0)
