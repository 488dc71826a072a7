"""Claims about rules that involve two settings or more."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.checkpoint.geometries import preset_config, preset_names
from nemotron_rl.config import presets
from nemotron_rl.config.geometry import geometry_of
from nemotron_rl.config.load import load_settings
from nemotron_rl.config.model import ParallelSettings
from nemotron_rl.config.nearest import nearest_key
from nemotron_rl.config.parallel import broken_parallel, check_parallel
from nemotron_rl.config.rules import RULES, check_settings
from nemotron_rl.config.settings import Settings
from nemotron_rl.errors import SettingsError
from nemotron_rl.preflight import check_source

CUDA = {"model.backend": "cuda", "rollout.engine": "sglang"}
SLURM = {"cluster.kind": "slurm"}
DENSE = {
    "n_layers": 4,
    "n_groups": 8,
    "n_heads": 8,
    "n_kv_heads": 8,
    "n_experts": 0,
    "n_mamba_heads": 16,
    "expert_width": 0,
}
BROKEN = {
    "ranks_multiply_up_to_the_world_size": ({"parallel.world_size": 3, "parallel.tp": 2}, "the nearest is 4"),
    "model_can_be_split": ({"parallel.world_size": 3, "parallel.tp": 3}, "use 1, 2 or 4 (nearest: 2)"),
    "samples_of_a_prompt_differ": ({"rollout.sampling.temperature": 0}, "all samples of a prompt equal"),
    "the_longest_response_fits_into_a_pass": (
        {"train.max_tokens_per_gpu": 4},
        "a response of 5 tokens and its prompt must fit into one pass; use more than 6",
    ),
    "prompts_spread_evenly_over_data_parallel_ranks": (
        {"parallel.world_size": 2, "train.prompts_per_step": 7},
        "multiple of the 2 data-parallel ranks; the nearest is 8",
    ),
    "updates_share_out_the_prompts_evenly": (
        {"parallel.world_size": 2, "train.updates_per_rollout": 3},
        "should divide the 8 prompts of each data-parallel rank; the nearest is 2",
    ),
    "cpu_backend_runs_fp32_and_the_reference_engine": ({"rollout.engine": "sglang"}, "needs model.backend = cuda"),
    "layers_are_distinct": ({"slice.layers": [0, 1, 1]}, "layer 1 is repeated"),
    "schedules_decay_downwards": ({"train.optimizer.min_lr": 1.0}, "should not be above train.optimizer.lr"),
    "optimizer_variants_have_what_they_need": ({"train.optimizer.moments": "bf16"}, "torch's AdamW; use fp32"),
    "kl_has_a_reference_model": (
        {"algorithm.kl_coef": 0.1, "algorithm.reference_weights": "none"},
        "compares with the starting weights, of which none keeps no copy; use device or host",
    ),
    "resume_names_a_checkpoint": ({"train.resume": "latest"}, "should be auto, none, a step number"),
    "prompt_files_come_in_pairs": ({"data.train_file": "a.jsonl"}, "is needed with data.train_file"),
    "generated_prompts_leave_some_to_train_on": ({"data.eval_prompts": 550}, "hold out at most 549"),
    "separate_rollouts_have_ranks_for_whole_engines": (
        {"rollout.placement": "separate"},
        "separate engines need ranks of their own, at least 1; the nearest is 1",
    ),
    "ranks_spread_evenly_over_nodes": (
        {"parallel.world_size": 4, "cluster.nodes": 3, "cluster.kind": "slurm"},
        "should divide parallel.world_size = 4; the nearest is 2",
    ),
    "every_cuda_rank_on_slurm_has_a_gpu": (CUDA | SLURM, "each of the 1 ranks of a node needs a GPU"),
    "gates_ask_for_what_is_measured": ({"gates.mtp_loss_max": 1.0, "slice.mtp": "drop"}, "no MTP loss is measured"),
    "memory_growth_needs_steps": ({"gates.memory_growth_max": 0.1, "train.steps": 2}, "which takes 3 steps; use null"),
    "kl_in_the_loss_has_a_gradient": (
        {"algorithm.kl_coef": 0.1, "algorithm.kl_estimator": "k1"},
        "use k2 or k3, or algorithm.kl_in = reward",
    ),
    "off_policy_bounds_leave_room": (
        {"algorithm.off_policy.correction": "mask", "algorithm.off_policy.high": 0.5},
        "[0, 0.5] leave out 1",
    ),
    "overlong_tokens_are_part_of_the_response": (
        {"algorithm.overlong_tokens": 6},
        "should not be above rollout.sampling.max_new_tokens = 5",
    ),
    "only_dropped_groups_are_drawn_again": (
        {"algorithm.redraw_rounds": 2},
        "set algorithm.drop_equal_groups = true, or use 0",
    ),
}


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_can_break_and_says_what_to_do(rule):
    overrides, expected = BROKEN[rule]
    with pytest.raises(SettingsError) as caught:
        load_settings("tiny", overrides=overrides, environ={})
    assert expected in str(caught.value)


SEPARATE = {"rollout.placement": "separate", "rollout.ranks": 3}


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"rollout.ranks": 1}, "have none of their own; use 0, or placement = separate"),
        (CUDA | SEPARATE | {"rollout.sglang.gpus_per_engine": 2}, "a multiple of rollout.sglang.gpus_per_engine = 2"),
        (
            SLURM | SEPARATE | {"parallel.world_size": 2, "cluster.nodes": 2},
            "divide parallel.world_size = 2 and rollout.ranks = 3; the nearest is 1",
        ),
        (CUDA | SLURM | SEPARATE | {"cluster.gpus_per_node": 3}, "each of the 4 ranks of a node needs a GPU; use 4"),
    ],
)
def test_ranks_of_rollouts_are_counted_with_those_of_trainers(overrides, expected):
    with pytest.raises(SettingsError) as caught:
        load_settings("tiny", overrides=overrides, environ={})
    assert expected in " ".join(str(caught.value).split())


def test_valid_settings_break_no_rule():
    check_settings(load_settings("tiny", environ={}))


def test_check_settings_names_the_key_and_value():
    with pytest.raises(SettingsError, match=r"parallel\.cp = 3"):
        check_settings(Settings(run_id="x", parallel=ParallelSettings(world_size=3, cp=3)))


@given(st.integers(1, 20), st.sampled_from([4, 8]), st.sampled_from([4, 32, 40]), st.sampled_from([1, 2, 8]))
def test_tp_is_accepted_exactly_when_everything_divides(tp, n_groups, n_heads, n_kv_heads):
    parallel = ParallelSettings(world_size=tp, tp=tp)
    sizes = {"n_groups": n_groups, "n_heads": n_heads, "n_kv_heads": n_kv_heads, "n_experts": 8}
    sizes |= {"n_mamba_heads": 2 * n_groups, "expert_width": 64}
    fits = n_groups % tp == 0 and n_heads % tp == 0 and (n_kv_heads % tp == 0 or tp % n_kv_heads == 0)
    assert fits == (not list(broken_parallel(parallel, **sizes)))


@given(st.integers(1, 16), st.integers(1, 20), st.integers(0, 20))
def test_the_nearest_choice_that_a_message_offers_is_accepted(ep, world, experts):
    sizes = DENSE | {"n_experts": experts, "expert_width": 64 * bool(experts)}
    del sizes["n_layers"]
    for broken in broken_parallel(ParallelSettings(world_size=world, ep=ep), **sizes):
        choice = int(broken.message.rsplit(" ", 1)[-1])
        assert not list(broken_parallel(ParallelSettings(world_size=world, ep=choice), **sizes))


@given(st.sampled_from([1, 2, 4, 8]), st.integers(1, 40), st.sampled_from([8, 16, 24, 128]))
def test_cp_is_accepted_exactly_when_megatron_can_share_out_the_mamba_heads(tp, cp, heads):
    sizes = {key: value for key, value in DENSE.items() if key != "n_layers"} | {"n_mamba_heads": heads}
    groups, mine = 8 // tp, heads // tp
    # The assertions of megatron-core 0.19.2 in MambaContextParallel.__init__.
    fits = mine % cp == 0 and (cp % groups == 0 if groups < cp else groups % cp == 0)
    broken = list(broken_parallel(ParallelSettings(world_size=tp * cp, tp=tp, cp=cp), **sizes))
    assert fits == (not broken)
    for rule in broken:
        choice = int(rule.message.rsplit(" ", 1)[-1].rstrip(")"))
        assert not list(broken_parallel(ParallelSettings(world_size=tp * choice, tp=tp, cp=choice), **sizes))


@given(st.sampled_from([1, 2, 4, 8]), st.integers(1, 12), st.sampled_from([64, 96, 100]))
def test_etp_is_accepted_exactly_when_it_divides_tp_and_an_experts_width(tp, etp, width):
    sizes = {key: value for key, value in DENSE.items() if key != "n_layers"} | {"n_experts": 8, "expert_width": width}
    broken = list(broken_parallel(ParallelSettings(world_size=tp, tp=tp, etp=etp), **sizes))
    assert (tp % etp == 0 and width % etp == 0) == (not broken)
    for rule in broken:
        choice = int(rule.message.rsplit(" ", 1)[-1])
        assert not list(broken_parallel(ParallelSettings(world_size=tp, tp=tp, etp=choice), **sizes))


def test_geometry_has_the_sizes_of_the_published_configs():
    for name in preset_names():
        config, known = preset_config(name), geometry_of(f"synth://{name}")
        assert vars(known) == {
            "n_groups": config["n_groups"],
            "n_heads": config["num_attention_heads"],
            "n_kv_heads": config["num_key_value_heads"],
            "n_experts": config.get("n_routed_experts") or 0,
            "n_mamba_heads": config["mamba_num_heads"],
            "expert_width": config.get("moe_intermediate_size") or 0 if config.get("n_routed_experts") else 0,
        }


@pytest.mark.parametrize("axis", ["ep", "etp"])
def test_a_dense_model_has_no_experts_to_split(axis):
    with pytest.raises(SettingsError, match=f"parallel.{axis} = 2\n.*no experts"):
        check_parallel(ParallelSettings(world_size=2, **{axis: 2}), **DENSE)


def test_layers_spread_evenly_over_pipeline_stages():
    with pytest.raises(SettingsError, match="does not divide the 4 layers that are trained; the nearest is 4"):
        check_parallel(ParallelSettings(world_size=5, pp=5), **DENSE)


def test_geometry_knows_official_models_and_no_others():
    sources = ["synth://ultra-550b-a55b", "hf://nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16@main"]
    assert all(geometry_of(uri) == geometry_of(sources[0]) is not None for uri in sources)
    assert (
        geometry_of("hf://someone/else") is None and geometry_of("synth://nope") is None and geometry_of("/a") is None
    )


def test_the_nearest_key_prefers_the_last_name():
    keys = ["train.optimizer.lr", "warmup.optimizer.lr", "train.steps"]
    assert nearest_key("train.lr", keys) == "train.optimizer.lr"
    assert nearest_key("warmup.lr", keys) == "warmup.optimizer.lr"
    assert nearest_key("train.stepps", keys) == "train.steps"
    assert nearest_key("zzz", keys) is None


def test_every_combination_of_small_splits_is_judged_without_failing():
    for world, tp, pp, ep in product(range(1, 5), repeat=4):
        settings = Settings(run_id="x", parallel=ParallelSettings(world_size=world, tp=tp, pp=pp, ep=ep))
        try:
            check_settings(settings)
        except SettingsError:
            continue
        assert world % (tp * pp) == 0 and world % (ep * pp) == 0


@pytest.mark.parametrize("preset", presets.preset_names())
def test_every_preset_can_be_split_as_it_says(preset):
    settings = load_settings(preset, environ={})
    check_source(settings)  # the layers and sizes of its model too, which are known without a download
    assert settings.parallel.dp >= 1


@pytest.mark.parametrize(
    ("preset", "ranks", "split"),
    [("ultra", 128, (8, 4, 32)), ("ultra-4layer", 8, (1, 1, 8)), ("super", 32, (4, 2, 8)), ("nano", 8, (2, 2, 2))],
)
def test_presets_of_published_models_have_their_splits(preset, ranks, split):
    parallel = load_settings(preset, environ={}).parallel
    assert (parallel.world_size, (parallel.tp, parallel.pp, parallel.ep)) == (ranks, split)


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        ({"warmup.optimizer.cpu_offload": 0.5}, "warmup.optimizer.cpu_offload", "torch's AdamW; use 0"),
        (
            {"model.backend": "cuda", "train.optimizer.cpu_offload": 1.0},
            "train.optimizer.cpu_offload",
            "needs train.optimizer.distributed = true",
        ),
    ],
)
def test_optimizer_variants_that_cannot_run_are_refused(changes, key, message):
    with pytest.raises(SettingsError) as refused:
        load_settings("tiny", overrides=changes, environ={})
    assert key in str(refused.value)
    assert message in str(refused.value)
