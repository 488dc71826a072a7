"""The published totals are the oracle of the tensor table: see `counts` and `sources` in the data."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.checkpoint.geometries import (
    SCALABLE,
    geometry,
    preset_config,
    preset_generation_config,
    preset_names,
    sources,
)
from nemotron_rl.checkpoint.spelling import read_pattern
from nemotron_rl.checkpoint.synth import plan_synth
from nemotron_rl.checkpoint.tensor_table import tensor_table
from nemotron_rl.errors import CheckpointError, SettingsError

PUBLISHED = [name for name in preset_names() if geometry(name).counts]


@pytest.mark.parametrize("preset", PUBLISHED)
def test_counts_are_the_published_ones(preset: str) -> None:
    tally, counts = plan_synth(preset).tally, geometry(preset).counts
    assert tally.total.tensors == counts["tensors_all"]
    assert tally.total.params == counts["all_params"]
    assert tally.total.nbytes == counts["payload_bytes"]
    assert tally.base.params == counts["base_params"]
    assert tally.layers == counts["layers"]
    assert {b: tally.by_block[b].params for b in tally.layers} == {
        block: count * counts["params_per_block"][block] for block, count in counts["layers"].items()
    }


def test_the_totals_that_nvidia_states() -> None:
    nano, super_ = plan_synth("nano-4b").tally.total, plan_synth("super-120b-a12b").tally.total
    assert (nano.tensors, nano.params) == (263, 3_973_556_832)
    assert (super_.tensors, super_.nbytes) == (42_683, 247_222_108_160)


def test_ultras_four_layers_have_the_stated_parameters() -> None:
    report = plan_synth("ultra-550b-a55b", layers=[0, 1, 7, 8])
    assert report.pattern == "ME*E/*E"
    assert report.tally.base.params == 24_593_452_800
    assert report.tally.by_block["mtp"].params == 11_215_610_368


def test_tiny_has_every_block_type_and_one_to_three_million_parameters() -> None:
    report = plan_synth("tiny")
    assert report.pattern == "MEM*EM-EMEM*EM-E/*E"
    assert set(report.tally.layers) == set("ME*-")
    assert 1_000_000 <= report.tally.total.params <= 3_000_000
    assert "other" not in report.tally.by_block


def test_only_the_expert_bias_is_fp32() -> None:
    fp32 = {spec.name.rpartition(".")[2] for spec in tensor_table(preset_config("tiny")) if spec.dtype == "F32"}
    assert fp32 == {"e_score_correction_bias"}


@pytest.mark.parametrize("preset", preset_names())
def test_configs_have_both_spellings_and_no_code_to_load(preset: str) -> None:
    config = preset_config(preset)
    assert "auto_map" not in config
    assert config["num_hidden_layers"] == len(config["hybrid_override_pattern"]) == len(config["layers_block_type"])
    assert read_pattern(config).mtp == read_pattern(geometry(preset).config).mtp
    assert "eos_token_id" in preset_generation_config(preset)


@pytest.mark.parametrize("preset", preset_names())
def test_every_value_says_where_it_is_known_from(preset: str) -> None:
    known = geometry(preset)
    known_ids = {source.id for source in sources()}
    cited = {word.strip(",;") for text in known.certainty.values() for word in text.split()}
    assert {word for word in cited if word[:1] == "S" and word[1:].isdigit()} <= known_ids
    assert "*" in known.certainty or set(known.config) <= set(known.certainty)


def test_options_of_a_config_add_and_remove_tensors() -> None:
    config = preset_config("tiny")
    plain = {spec.name for spec in tensor_table(config)}
    tied = {spec.name for spec in tensor_table(config | {"tie_word_embeddings": True})}
    flat = {spec.name for spec in tensor_table(config | {"moe_latent_size": None})}
    assert plain - tied == {"lm_head.weight"}
    assert {name.split("mixer.")[1] for name in plain - flat} == {"fc1_latent_proj.weight", "fc2_latent_proj.weight"}
    assert all(spec.dtype == "F32" for spec in tensor_table(config | {"dtype": "float32"}))


def test_each_mtp_step_has_its_own_tensors() -> None:
    names = [spec.name for spec in tensor_table(preset_config("tiny") | {"num_nextn_predict_layers": 2})]
    for own in ("eh_proj.weight", "enorm.weight", "hnorm.weight"):
        assert [n for n in names if n.endswith(own)] == [f"mtp.layers.0.{own}", f"mtp.layers.2.{own}"]
    assert [n for n in names if "final_layernorm" in n] == [f"mtp.layers.{j}.final_layernorm.weight" for j in (1, 3)]


def test_an_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(SettingsError, match=r"'nano-4'.*nano-4b.*Did you mean 'nano-4b'"):
        geometry("nano-4")


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"n_routed_expert": 4}, "Did you mean 'n_routed_experts'"),
        ({"num_hidden_layers": 4}, "cannot be changed"),
        ({"n_groups": 3}, "multiple of `n_groups`"),
        ({"num_key_value_heads": 3}, "multiple of `num_key_value_heads`"),
        ({"n_routed_experts": 1}, "at most `n_routed_experts`"),
        ({"hidden_size": 0}, "positive whole number"),
    ],
)
def test_impossible_overrides_are_refused(overrides: dict[str, int], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        preset_config("tiny", overrides)


sizes = st.integers(-1, 40) | st.none() | st.booleans() | st.text(max_size=2) | st.just(1 << 64)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys([*SCALABLE, "dtype", "use_bias", "mlp_bias"], sizes)))
def test_any_sizes_give_a_table_or_an_error(changed: dict[str, object]) -> None:
    try:
        table = list(tensor_table(preset_config("tiny") | changed))
    except CheckpointError:
        return
    assert len({spec.name for spec in table}) == len(table)
    assert all(axis > 0 for spec in table for axis in spec.shape)


@pytest.mark.parametrize(
    "broken",
    [
        {"hidden_size": None},
        {"head_dim": "32"},
        {"vocab_size": 1 << 40},
        {"dtype": "int4"},
        {"n_routed_experts": 1 << 17},
    ],
)
def test_a_config_without_usable_sizes_is_refused_by_key(broken: dict[str, object]) -> None:
    with pytest.raises(CheckpointError, match=next(iter(broken))):
        tensor_table(preset_config("tiny") | broken)
