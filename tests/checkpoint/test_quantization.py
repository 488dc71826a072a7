"""A slice's account of quantized modules is about its own layers."""

from __future__ import annotations

import json
import shutil
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.checkpoint.quantization import QUANT_FILE, renumbered
from nemotron_rl.checkpoint.slicing import slice_checkpoint
from nemotron_rl.errors import SliceError

LAYERS = 24
ACCOUNT = {
    "producer": {"name": "modelopt", "version": "0.29.0"},
    "quantization": {
        "quant_algo": "FP8",
        "exclude_modules": ["backbone.layers.0.mixer.in_proj", "backbone.layers.3.mixer*", "lm_head", "mtp.layers.0*"],
        "quantized_layers": {"backbone.layers.1.mixer.up_proj": {"quant_algo": "NVFP4", "group_size": 16}},
    },
}


def test_layers_get_their_new_numbers_and_those_left_out_are_left_out():
    new = renumbered(ACCOUNT, {3: 0, 1: 1}, "keep", "here")
    assert new["producer"] == ACCOUNT["producer"]
    assert new["quantization"]["exclude_modules"] == ["backbone.layers.0.mixer*", "lm_head", "mtp.layers.0*"]
    assert new["quantization"]["quantized_layers"] == {
        "backbone.layers.1.mixer.up_proj": {"quant_algo": "NVFP4", "group_size": 16}
    }
    assert "mtp.layers.0*" not in renumbered(ACCOUNT, {3: 0}, "drop", "here")["quantization"]["exclude_modules"]


@given(
    kept=st.permutations(range(LAYERS)).flatmap(lambda order: st.integers(1, LAYERS).map(lambda n: order[:n])),
    names=st.lists(
        st.builds(
            "{}layers.{}{}".format,
            st.sampled_from(["backbone.", "model.", "model.backbone.", "*."]),
            st.integers(0, LAYERS - 1),
            st.sampled_from(["", "*", ".mixer", ".mixer*", ".*", ".mixer.experts.7.up_proj"]),
        )
    ),
)
def test_a_module_is_named_after_slicing_exactly_if_it_was_before(kept, names):
    """The oracle asks of every module that exists whether any name fits it, before and after."""
    new_names = renumbered(names, {old: new for new, old in enumerate(kept)}, "keep", "here")
    for new, old in enumerate(kept):
        for rest in (".mixer", ".norm", ".mixer.experts.7.up_proj"):
            for top in ("backbone.", "model.", "model.backbone."):
                before = any(fnmatchcase(f"{top}layers.{old}{rest}", name) for name in names)
                after = any(fnmatchcase(f"{top}layers.{new}{rest}", name) for name in new_names)
                assert before == after, (top, old, new, rest)


@pytest.mark.parametrize("name", ["re:.*layers.(1|2).*", "backbone.layers.[12].mixer", r"re:.*layers\.4\..*"])
def test_layers_named_by_a_pattern_are_refused(name):
    with pytest.raises(SliceError, match="one name for each layer"):
        renumbered({"ignore": [name]}, {0: 0}, "keep", "x/config.json")


def test_a_slice_writes_both_files_anew(tiny, tmp_path):
    source = shutil.copytree(tiny, tmp_path / "fp8")
    (source / QUANT_FILE).write_text(json.dumps(ACCOUNT))
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "modelopt", "ignore": ["backbone.layers.3.mixer.q_proj"]}
    (source / "config.json").write_text(json.dumps(config))
    slice_checkpoint(source, tmp_path / "out", [1, 3])
    written = json.loads((tmp_path / "out" / QUANT_FILE).read_text())
    assert written == renumbered(ACCOUNT, {1: 0, 3: 1}, "keep", "")
    ignored = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]["ignore"]
    assert ignored == ["backbone.layers.1.mixer.q_proj"]
    slice_checkpoint(source, tmp_path / "whole", None)
    assert json.loads((tmp_path / "whole" / QUANT_FILE).read_text()) == ACCOUNT
