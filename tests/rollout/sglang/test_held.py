"""The engine's parameters seen as checkpoint tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from nemotron_rl.checkpoint.tensor_table import tensor_table
from nemotron_rl.rollout.sglang.held import box, checkpoint_name, held_tensors
from tests.rollout.sglang.mimic import mimic


@pytest.fixture(scope="module")
def config(four_layers: Path) -> dict[str, Any]:
    return json.loads((four_layers / "config.json").read_text())


def test_every_tensor_but_the_mtp_heads_has_its_place_and_shape(config: dict[str, Any]) -> None:
    wanted = {spec.name: tuple(spec.shape) for spec in tensor_table(config) if not spec.name.startswith("mtp.")}
    assert {name: tuple(held.view.shape) for name, held in held_tensors(mimic(config)).items()} == wanted


def test_views_share_the_parameters_memory_and_cover_it_but_for_the_padding(config: dict[str, Any]) -> None:
    model = mimic(config)
    for held in held_tensors(model).values():
        held.view.fill_(3)
    rest = {n: int((p != 3).sum()) for n, p in model.named_parameters() if bool((p != 3).any())}
    assert set(rest) == {"model.embed_tokens.weight", "lm_head.weight"}


def test_a_rank_holds_its_own_experts(config: dict[str, Any]) -> None:
    names = [set(held_tensors(mimic(config, rank, 2))) for rank in (0, 1)]
    everything = {spec.name for spec in tensor_table(config) if not spec.name.startswith("mtp.")}
    assert names[0] | names[1] == everything
    assert all(".experts." not in name or ".mixer.experts." in name for name in names[0] & names[1])
    assert not any(".mixer.experts." in name for name in names[0] & names[1])


def test_attention_that_is_split_is_refused(config: dict[str, Any]) -> None:
    model: Any = mimic(config)
    model.model.layers.get_submodule("2").mixer.num_heads = 1
    with pytest.raises(ValueError, match=r"qkv_proj.weight is split over attention TP"):
        held_tensors(model)


def test_a_vocabulary_that_is_split_is_refused(config: dict[str, Any]) -> None:
    model: Any = mimic(config)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight[:10].detach())
    with pytest.raises(ValueError, match=r"lm_head.weight has 10 of"):
        held_tensors(model)


def test_names() -> None:
    assert checkpoint_name("model.layers.3.mixer.D") == "backbone.layers.3.mixer.D"
    assert checkpoint_name("model.embed_tokens.weight") == "backbone.embeddings.weight"
    assert checkpoint_name("lm_head.weight") == "lm_head.weight"


def test_split_shared_experts_are_seen_as_the_ranks_part(config: dict[str, Any]) -> None:
    model: Any = mimic(config)
    shared = model.model.layers.get_submodule("1").mixer.shared_experts
    for linear, sizes in ((shared.up_proj, "output"), (shared.down_proj, "input")):
        linear.tp_size, linear.tp_rank = 2, 1
        setattr(linear, f"{sizes}_size_per_partition", 1)
    names = [f"backbone.layers.1.mixer.shared_experts.{part}_proj.weight" for part in ("up", "down")]
    up, down = (next(one for one in held_tensors(model).values() if one.name == name) for name in names)
    assert up.start == (up.view.shape[0], 0)
    assert down.start == (0, down.view.shape[1])
    assert down.key == f"{names[1]}@0,{down.view.shape[1]}"


def test_a_box_is_a_view() -> None:
    whole = torch.arange(12).view(2, 6)
    assert box(whole, (0, 2), (2, 2)).tolist() == [[2, 3], [8, 9]]
    assert box(whole, None, (2, 6)) is whole
    with pytest.raises(ValueError, match="zip"):
        box(whole, (0,), (2,))
