"""What SGLang is started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from nemotron_rl.config.rollout import SamplingSettings, SglangSettings
from nemotron_rl.rollout.sglang.arguments import engine_arguments, sampling_arguments
from nemotron_rl.rollout.sglang.group import EngineGroup
from nemotron_rl.rollout.sglang.message import LOADER


def test_an_engine_of_several_gpus_splits_experts_alone() -> None:
    given = engine_arguments(Path("m"), SglangSettings(gpus_per_engine=4), seed=1, load=False)
    assert (given["tp_size"], given["ep_size"], given["dp_size"]) == (4, 4, 4)
    assert given["enable_dp_attention"] and given["enable_dp_lm_head"]
    assert not engine_arguments(Path("m"), SglangSettings(), seed=1, load=False)["enable_dp_attention"]


def test_the_receiver_is_announced_by_a_path_that_leads_to_it() -> None:
    module, _, name = LOADER.rpartition(".")
    assert callable(getattr(__import__(module, fromlist=[name]), name))
    assert engine_arguments(Path("m"), SglangSettings(), seed=1, load=False)["custom_weight_loader"] == [LOADER]


@pytest.mark.parametrize(("load", "form"), [(True, "auto"), (False, "dummy")])
def test_weights_are_read_only_when_asked_for(load: bool, form: str) -> None:
    assert engine_arguments(Path("m"), SglangSettings(), seed=1, load=load)["load_format"] == form


def test_sampling() -> None:
    given = sampling_arguments(SamplingSettings(top_k=0, max_new_tokens=7), (2, 3))
    assert (given["top_k"], given["max_new_tokens"], given["stop_token_ids"]) == (-1, 7, [2, 3])
    assert sampling_arguments(SamplingSettings(top_k=5), ())["top_k"] == 5


def test_a_process_alone_gathers_and_scatters_its_own() -> None:
    group = EngineGroup.alone()
    assert group.leads
    assert group.scatter(group.gather("mine")) == "mine"
    assert group.lead(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        group.lead(lambda: 1 // 0)
