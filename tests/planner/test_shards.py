"""What each rank holds: summed over ranks it is the model. Against real models: tests/megatron/test_parity.py."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.checkpoint.geometries import preset_config, preset_names
from nemotron_rl.checkpoint.tensor_table import tensor_table
from nemotron_rl.config.model import ParallelSettings
from nemotron_rl.planner.shards import Shard, model_sizes, stage_shards

TINY = preset_config("tiny")


@pytest.mark.parametrize("preset", preset_names())
def test_one_rank_holds_every_tensor(preset: str) -> None:
    config = preset_config(preset)
    (shard,) = stage_shards(model_sizes(config), ParallelSettings())
    assert shard.trained + shard.bias == sum(tensor.params for tensor in tensor_table(config))


@given(st.sampled_from([1, 2]), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]))
def test_ranks_together_hold_the_model_and_what_is_replicated(tp: int, pp: int, ep: int, etp: int) -> None:
    """By a loop over tensors and ranks, for splits that keep a key/value head whole."""
    sizes, parallel = model_sizes(TINY), ParallelSettings(world_size=64, tp=tp, pp=pp, ep=ep, etp=etp)
    layers = len(sizes.layers)
    held = [[0, 0] for _ in range(pp)]
    for tensor in tensor_table(TINY):
        stages = _stages(tensor.name, pp, layers)
        if tensor.name.endswith("e_score_correction_bias"):
            continue
        for stage in stages:
            if ".experts." in tensor.name:
                for _ in product(range(ep), range(etp)):
                    held[stage][1] += tensor.params // (ep * etp)
            else:
                held[stage][0] += tensor.params if _replicated(tensor.name) else tensor.params // tp
    assert [[shard.dense, shard.expert * ep * etp] for shard in stage_shards(sizes, parallel)] == held


def _stages(name: str, pp: int, layers: int) -> list[int]:
    if name.startswith("backbone.embeddings"):
        return sorted({0, pp - 1})  # MTP needs it on the last one
    if name.startswith("backbone.layers."):
        return [int(name.split(".")[2]) * pp // layers]
    return [pp - 1]


def _replicated(name: str) -> bool:
    norms = ("norm.weight", "norm_f.weight", "layernorm.weight", "gate.weight", "latent_proj.weight")
    return name.endswith(norms) and not name.endswith("mixer.norm.weight")


def test_a_rank_has_a_key_value_head_at_least() -> None:
    sizes = model_sizes(preset_config("ultra-550b-a55b"))
    two, eight = (sum(layer.get("key_value", 0) for layer in sizes.layers) // min(tp, sizes.kv_heads) for tp in (2, 8))
    assert two == eight > 0


def test_a_repeated_head_is_held_once_and_separate_steps_each() -> None:
    once = stage_shards(model_sizes(TINY), ParallelSettings())[0]
    repeated = stage_shards(model_sizes(TINY | {"num_nextn_predict_layers": 3}), ParallelSettings())[0]
    separate = TINY | {"num_nextn_predict_layers": 3, "mtp_use_repeated_layer": False}
    apart = stage_shards(model_sizes(separate), ParallelSettings())[0]
    head = sum(count for kind, count in model_sizes(TINY).mtp.items() if kind != "bias")
    assert repeated == once
    assert apart.trained == once.trained + 2 * head
    assert isinstance(apart, Shard)
