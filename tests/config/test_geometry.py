"""The table of well-known sizes says what the published configurations say."""

from __future__ import annotations

import pytest

from nemotron_rl.checkpoint.geometries import geometry, preset_names
from nemotron_rl.config.geometry import geometry_of


@pytest.mark.parametrize("preset", preset_names())
def test_every_checkpoint_preset_is_known_with_its_sizes(preset):
    config = geometry(preset).config
    known = geometry_of(f"synth://{preset}")
    assert known is not None
    assert known.n_groups == config["n_groups"]
    assert known.n_heads == config["num_attention_heads"]
    assert known.n_kv_heads == config["num_key_value_heads"]
    assert known.n_experts == config.get("n_routed_experts", 0)
