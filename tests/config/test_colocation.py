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


def test_published_presets_name_the_split_that_is_not_there_yet() -> None:
    assert {broken.key for broken in broken_colocation(load_settings("ultra", environ={}))} >= {
        "parallel.tp",
        "parallel.pp",
    }
