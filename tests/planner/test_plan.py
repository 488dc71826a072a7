"""Memory plans: formulas at sizes that can be counted by hand, what grows with what, and advice that is true."""

from __future__ import annotations

import json
from functools import cache

import pytest

from nemotron_rl.config.load import load_settings
from nemotron_rl.config.model import ParallelSettings
from nemotron_rl.config.presets import preset_names
from nemotron_rl.config.training import OptimizerSettings
from nemotron_rl.errors import InputError
from nemotron_rl.planner.advice import suggestions
from nemotron_rl.planner.engine import engine_memory
from nemotron_rl.planner.gpus import gpu_bytes
from nemotron_rl.planner.plan import Assumptions, MemoryPlan, Planner, optimizer_bytes
from nemotron_rl.planner.shards import Shard
from nemotron_rl.preflight import run_config, split_limits


@cache
def planner_of(preset: str, gpu: str) -> Planner:
    """Counting the 50,000 tensors of a large model takes a second."""
    return Planner(run_config(load_settings(preset, environ={})), preset, gpu_bytes(gpu), Assumptions())


def planned(preset: str, **overrides: object) -> MemoryPlan:
    return planner_of(preset, "h200").plan(load_settings(preset, overrides=overrides, environ={}))


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_fits_the_gpus_that_it_is_for(preset: str) -> None:
    assert planned(preset).fits


def test_the_chunk_of_the_log_prob_pass_is_the_trainers() -> None:
    from nemotron_rl.megatron.logprobs import CHUNK_BYTES
    from nemotron_rl.planner.activations import LOGITS_CHUNK_BYTES

    assert LOGITS_CHUNK_BYTES == CHUNK_BYTES


@pytest.mark.parametrize(
    ("changes", "dtype", "nbytes"),
    [
        ({}, "bf16", 12 * 1800),
        ({}, "fp32", 8 * 1800),
        ({"moments": "bf16"}, "bf16", 8 * 1800),
        ({"distributed": True}, "bf16", 12 * (1000 / 8 + 800 / 2)),
        ({"distributed": True, "cpu_offload": 0.75}, "bf16", 12 * (1000 / 8 + 800 / 2) / 4),
    ],
)
def test_bytes_of_the_optimizer(changes: dict[str, object], dtype: str, nbytes: float) -> None:
    parallel = ParallelSettings(world_size=32, tp=2, pp=2, cp=2, ep=8)  # 8 copies of dense parts, 2 of experts
    settings = OptimizerSettings.model_validate(changes)
    assert optimizer_bytes(Shard(1000, 800, 5), settings, parallel, dtype) == pytest.approx(nbytes)


def test_more_tokens_need_more_memory_while_training_only() -> None:
    few, many = (planned("ultra", **{"train.max_tokens_per_gpu": tokens}) for tokens in (8192, 16384))
    for before, after in zip(few.stages, many.stages, strict=True):
        assert 1.5 * before.activations < after.activations <= 2 * before.activations
        assert before.rollout == after.rollout


def test_earlier_stages_keep_more_micro_batches() -> None:
    first, second, *_ = planned("ultra").stages
    assert first.activations == pytest.approx(second.activations * 4 / 3, rel=0.02)


def test_an_engine_splits_experts_over_all_its_gpus_and_attention_over_the_mamba_groups() -> None:
    sizes = planner_of("ultra", "h200").sizes
    engine = engine_memory(
        sizes,
        {"K": 256, "D": 16384, "C": 18432, "W": 4},
        n_groups=8,
        ssm_state=128,
        world_size=128,
        engine_gpus=32,
        requests=64,
        tokens_per_request=100,
    )
    assert engine.attention_tp == 8
    assert engine.requests == 4  # 64 over 128 / 8 attention groups
    attention = sizes.pattern.main.count("*") + 1  # the MTP head's too
    assert engine.kv_cache == 2 * 2 * 256 / 2 * attention * 100 * 4
    assert engine.mamba_state == (4 * 16384 * 128 + 2 * 18432 * 4) / 8 * sizes.pattern.main.count("M") * 4


@pytest.mark.parametrize("preset", ["ultra", "super", "nano", "ultra-4layer"])
@pytest.mark.parametrize("gpu", ["h100", "h200"])
def test_everything_that_is_said_to_fit_does(preset: str, gpu: str) -> None:
    settings = load_settings(
        preset, overrides={"train.optimizer.distributed": False, "train.optimizer.moments": "fp32"}, environ={}
    )
    planner = planner_of(preset, gpu)
    assert not planner.plan(settings).fits
    offered = suggestions(planner, settings, split_limits(run_config(settings)))
    assert offered
    for advice in offered:
        overrides = [
            "train.optimizer.distributed=false",
            "train.optimizer.moments=fp32",
            "cluster.nodes=1",
            "cluster.gpus_per_node=4096",
            "train.prompts_per_step=4096",
            *advice.split(),
        ]
        changed = load_settings(preset, overrides=overrides, environ={})
        changed = changed.model_copy(
            update={"train": changed.train.model_copy(update={"prompts_per_step": settings.train.prompts_per_step})}
        )
        assert planner.plan(changed).fits, advice


def test_unknown_gpus_and_models_are_refused_with_what_to_do() -> None:
    with pytest.raises(InputError, match=r"unknown GPU 'h20' \(did you mean h200\?\)"):
        gpu_bytes("h20")
    settings = load_settings("tiny", overrides={"source.uri": "hf://someone/else"}, environ={})
    with pytest.raises(InputError, match="not known without downloading it"):
        run_config(settings)


def test_the_plan_as_json_has_its_stages() -> None:
    plan = planned("ultra")
    assert len(json.loads(plan.model_dump_json())["stages"]) == 4
