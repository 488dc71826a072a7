from __future__ import annotations

import pytest

from nemotron_rl.checkpoint.geometries import preset_config
from nemotron_rl.checkpoint.selection import check_layers, new_name, select_config
from nemotron_rl.errors import SliceError


def test_a_refusal_shows_the_flag_the_mistake_and_what_works() -> None:
    with pytest.raises(SliceError) as refused:
        check_layers([0, 1, 7, 199], preset_config("ultra-550b-a55b")["hybrid_override_pattern"], "hf://nvidia/Ultra")
    assert str(refused.value).splitlines() == [
        "layer 199 is out of range for hf://nvidia/Ultra (108 layers, 0 to 107).",
        "  --layers 0,1,7,199",
        "                 ^^^",
        "  To cover every block type, use 0,1,7,8 (of MEMEMEM*E…: M=0, E=1, *=7, E=8).",
    ]


@pytest.mark.parametrize(
    ("layers", "says"),
    [
        ([], "no layers"),
        ([3, 3], "twice"),
        ([-1, 3], "layer -1 is out of range"),
        ([4], "out of range"),
        ([0, 1], "'ME'"),
    ],
)
def test_impossible_selections_are_refused(layers: list[int], says: str) -> None:
    with pytest.raises(SliceError, match=says):
        check_layers(layers, "ME-*", "source")


def test_selected_configs_change_only_the_pattern() -> None:
    config = preset_config("tiny")
    selected = select_config(config, [4, 3], "drop", "source")
    changed = {key for key in config.keys() | selected.keys() if config.get(key) != selected.get(key)}
    assert changed == {
        "hybrid_override_pattern",
        "layers_block_type",
        "num_hidden_layers",
        "mtp_hybrid_override_pattern",
        "mtp_layers_block_type",
        "num_nextn_predict_layers",
    }
    assert (selected["hybrid_override_pattern"], selected["num_nextn_predict_layers"]) == ("E*", 0)


@pytest.mark.parametrize(
    ("name", "renamed"),
    [
        ("backbone.layers.7.mixer.experts.7.up_proj.weight", "backbone.layers.0.mixer.experts.7.up_proj.weight"),
        ("backbone.layers.17.norm.weight", "backbone.layers.1.norm.weight"),
        ("backbone.layers.1.norm.weight", None),
        ("backbone.norm_f.weight", "backbone.norm_f.weight"),
        ("mtp.layers.7.norm.weight", None),
    ],
)
def test_tensors_are_renumbered_or_left_out(name: str, renamed: str | None) -> None:
    assert new_name(name, {7: 0, 17: 1}, "drop") == renamed
    assert new_name("mtp.layers.7.norm.weight", {7: 0}, "keep") == "mtp.layers.7.norm.weight"
