"""Splits that an SGLang engine cannot share GPUs with."""

from __future__ import annotations

import pytest

from nemotron_rl.config.colocation import broken_colocation, check_colocation
from nemotron_rl.config.load import load_settings
from nemotron_rl.errors import SettingsError


@pytest.mark.parametrize("preset", ["tiny", "ultra-4layer"])
def test_presets_that_can_run(preset: str) -> None:
    check_colocation(load_settings(preset, environ={}))


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"model.dtype": "fp32"}, "computes in bf16"),
        ({"parallel.tp": 2, "parallel.ep": 4, "rollout.sglang.gpus_per_engine": 4}, "ep and dp only"),
        ({"rollout.sglang.gpus_per_engine": 4}, "should equal rollout.sglang.gpus_per_engine = 4"),
        ({"rollout.sglang.gpus_per_engine": 3}, "should divide parallel.world_size = 8; the nearest is"),
    ],
)
def test_what_cannot_says_why(overrides: dict, expected: str) -> None:
    settings = load_settings("ultra-4layer", overrides=overrides, environ={})
    with pytest.raises(SettingsError) as caught:
        check_colocation(settings)
    assert expected in " ".join(str(caught.value).split())


def test_beside_an_engine_of_its_own_ranks_a_trainer_may_be_split_in_any_way() -> None:
    separate = {"rollout.placement": "separate", "rollout.ranks": 8, "rollout.sglang.gpus_per_engine": 4}
    split = {"parallel.tp": 2, "parallel.pp": 2, "parallel.ep": 2, "cluster.gpus_per_node": 16}
    check_colocation(load_settings("ultra-4layer", overrides=separate | split, environ={}))


def test_an_engine_lies_on_one_node() -> None:
    nodes = {"cluster.kind": "slurm", "cluster.nodes": 2, "cluster.gpus_per_node": 8, "parallel.world_size": 8}
    separate = {"rollout.placement": "separate", "rollout.ranks": 6, "rollout.sglang.gpus_per_engine": 2}
    check_colocation(load_settings("ultra-4layer", overrides=nodes | separate, environ={}))
    across = {"rollout.ranks": 8, "parallel.world_size": 4, "parallel.ep": 4, "rollout.sglang.gpus_per_engine": 4}
    with pytest.raises(SettingsError, match="would lie across nodes of 6"):
        check_colocation(load_settings("ultra-4layer", overrides=nodes | separate | across, environ={}))


def test_published_presets_name_the_split_that_is_not_there_yet() -> None:
    assert {broken.key for broken in broken_colocation(load_settings("ultra", environ={}))} >= {
        "parallel.tp",
        "parallel.pp",
    }
