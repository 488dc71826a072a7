from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.checkpoint.spelling import BLOCK_NAMES, Pattern, block_names, read_pattern, write_pattern
from nemotron_rl.errors import CheckpointError

STRING, LIST, COUNT = "hybrid_override_pattern", "layers_block_type", "num_hidden_layers"
MTP_STRING, MTP_LIST, MTP_DEPTH = "mtp_hybrid_override_pattern", "mtp_layers_block_type", "num_nextn_predict_layers"

letters = st.text("ME*-", max_size=12)
patterns = st.builds(lambda a, b, mtp, depth: Pattern(f"{a}*{b}", mtp if depth else "", depth), letters, letters,
                     st.text("ME*-", min_size=1, max_size=3), st.integers(0, 3))  # fmt: skip


@given(patterns, st.dictionaries(st.sampled_from(["vocab_size", "a", "b"]), st.integers()))
def test_what_is_written_is_read_back_and_nothing_else_changes(pattern: Pattern, others: dict[str, int]) -> None:
    written = write_pattern(others, pattern)
    assert read_pattern(written) == pattern
    assert {key: written[key] for key in others} == others


@given(patterns, st.sampled_from([(STRING,), (LIST,), (STRING, LIST), (STRING, COUNT), (LIST, COUNT)]),
       st.sampled_from([(MTP_STRING,), (MTP_LIST,), (MTP_STRING, MTP_LIST)]))  # fmt: skip
def test_every_spelling_says_the_same(pattern: Pattern, main: tuple[str, ...], mtp: tuple[str, ...]) -> None:
    full = write_pattern({}, pattern)
    spelled = {key: value for key, value in full.items() if key in (*main, *mtp, MTP_DEPTH)}
    assert read_pattern(spelled) == pattern
    assert write_pattern(spelled, pattern) == full


def test_a_null_layer_count_is_no_spelling() -> None:
    assert read_pattern({LIST: block_names("ME*E"), COUNT: None}).main == "ME*E"


def test_a_dropped_head_leaves_no_pattern_and_depth_zero() -> None:
    source = write_pattern({}, Pattern("M*", "*E", 1))
    assert write_pattern(source, Pattern("M*")) == write_pattern({MTP_DEPTH: 0}, Pattern("M*"))


def test_a_head_of_depth_zero_has_no_pattern_even_where_the_config_spells_one() -> None:
    assert read_pattern({STRING: "M*", MTP_LIST: ["attention", "moe"], MTP_DEPTH: 0}) == Pattern("M*")


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({}, [STRING, LIST, "Nemotron-H"]),
        ({STRING: "ME*E", LIST: block_names("ME*M")}, [f"`{STRING}` is 'ME*E'", f"`{LIST}` is 'ME*M'"]),
        ({STRING: "ME*E", COUNT: 5}, [f"`{COUNT}` is 5", STRING, "4 layers"]),
        ({LIST: block_names("ME*E"), COUNT: "4"}, [COUNT, LIST]),
        ({STRING: "MEX*"}, ["'X'", "layer 2", "* (attention)"]),
        ({LIST: ["mamba", "attn"]}, ["'attn'", "layer 1"]),
        ({LIST: "ME*E"}, ["list of block names"]),
        ({STRING: ["mamba"]}, ["string of block letters"]),
        ({STRING: "MEM-"}, ["no attention", "M (mamba), E (moe), - (mlp)", "KV cache"]),
        ({STRING: ""}, ["no attention", "none"]),
        ({STRING: "M*", MTP_DEPTH: 1}, [MTP_STRING, MTP_LIST]),
        ({STRING: "M*", MTP_DEPTH: -1, MTP_STRING: "*E"}, [MTP_DEPTH, "-1"]),
        ({STRING: "M*", MTP_DEPTH: 10**9, MTP_STRING: "*E"}, [MTP_DEPTH, "0 to 64"]),
        ({STRING: "M*", MTP_DEPTH: True, MTP_STRING: "*E"}, [MTP_DEPTH]),
        ({STRING: "M*", MTP_DEPTH: 1, MTP_STRING: "*E", MTP_LIST: ["moe"]}, [MTP_STRING, MTP_LIST, "'*E'", "'E'"]),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_the_keys_named(config: dict[str, object], says: list[str]) -> None:
    with pytest.raises(CheckpointError) as refused:
        read_pattern(config, "some/config.json")
    for part in ["some/config.json", *says]:
        assert part in str(refused.value)


json_values = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                           lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
                           max_leaves=6)  # fmt: skip


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(
    (STRING, LIST, COUNT, MTP_STRING, MTP_LIST, MTP_DEPTH),
    json_values | letters | st.lists(st.sampled_from(list(BLOCK_NAMES.values())), max_size=5))))  # fmt: skip
def test_any_config_is_read_or_refused(config: dict[str, object]) -> None:
    try:
        pattern = read_pattern(config)
    except CheckpointError:
        return
    assert "*" in pattern.main
