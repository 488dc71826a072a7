"""SGLang's record of experts, decoded; and the numbers without which its NemotronH cannot record."""

from __future__ import annotations

import base64
import inspect
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from nemotron_rl.errors import NemotronRLError
from nemotron_rl.rollout.sglang.arguments import engine_arguments
from nemotron_rl.rollout.sglang.routes import MODELS, RecordedLayout, number_choices

SOURCE = Path(__file__).parents[3] / ".tools" / "sglang" / "sglang" / "srt"
LAYOUT = RecordedLayout(layers=4, moe_layers=(1, 3), experts_per_token=2, experts=8)


def record(tokens: int = 3) -> torch.Tensor:
    """As SGLang has it: zeros in layers that are no MoE."""
    all_TNK = torch.zeros(tokens, 4, 2, dtype=torch.int32)
    for layer in LAYOUT.moe_layers:
        all_TNK[:, layer] = torch.tensor([[t % 8, (t + layer) % 8] for t in range(tokens)])
    return all_TNK


def meta(all_TNK: torch.Tensor) -> dict[str, Any]:
    return {"routed_experts": base64.b64encode(all_TNK.numpy().tobytes()).decode()}


def test_moe_layers_are_picked_in_their_order() -> None:
    decoded = LAYOUT.decode(meta(record()), tokens=4)
    assert decoded.dtype == torch.int16
    assert torch.equal(decoded, record()[:, [1, 3]].to(torch.int16))


def test_the_layout_is_the_configs(four_layers: Path) -> None:
    config = json.loads((four_layers / "config.json").read_text())
    want = RecordedLayout(4, (1, 3), config["num_experts_per_tok"], config["n_routed_experts"])
    assert RecordedLayout.of(config) == want


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "gave no routed experts"),
        (meta(record(2)), r"have 64 bytes; expected 96: int32 of 3 tokens, 4 layers and 2 experts"),
        (meta(torch.zeros(3, 4, 2, dtype=torch.int32)), r"token 0 in MoE layer 0 is \[0, 0\]"),
    ],
)
def test_a_record_that_cannot_be_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(NemotronRLError, match=message):
        LAYOUT.decode(given, tokens=4)


def moe(layer: int | None) -> nn.Module:
    block = nn.Module()
    block.topk, block.experts = SimpleNamespace(layer_id=None), SimpleNamespace(layer_id=layer)  # type: ignore
    return block


def test_each_choice_gets_the_number_of_its_experts() -> None:
    blocks = [moe(1), nn.Linear(1, 1), moe(3)]
    assert number_choices(nn.ModuleList(blocks)) == 2
    assert [blocks[place].topk.layer_id for place in (0, 2)] == [1, 3]  # type: ignore[union-attr]


def test_experts_that_do_not_know_their_layer_are_refused() -> None:
    with pytest.raises(ValueError, match="routes cannot be recorded"):
        number_choices(nn.ModuleList([moe(None)]))
    with pytest.raises(ValueError, match="has no MoE layer"):
        number_choices(nn.Linear(1, 1))


def test_recording_is_asked_for_at_the_start_alone_when_wanted() -> None:
    from nemotron_rl.config.rollout import SglangSettings

    given = [engine_arguments(Path("m"), SglangSettings(), seed=1, load=False, routes=on) for on in (False, True)]
    assert [one["enable_return_routed_experts"] for one in given] == [False, True]


def test_the_pinned_sglang_has_what_the_recording_needs() -> None:
    """Read, not run: it cannot be imported without a GPU stack."""
    assert next(iter(MODELS)) in (SOURCE / "models" / "registry.py").read_text()
    server = (SOURCE / "server_args.py").read_text()
    assert "enable_return_routed_experts:" in server
    model = (SOURCE / "models" / "nemotron_h.py").read_text()
    built = re.search(r"self\.topk = TopK\((.*?)\n        \)", model, re.S)
    assert built is not None and "layer_id" not in built[1]  # once it has, number_choices can go
    assert "self.layer_id = layer_id" in (SOURCE / "layers" / "moe" / "topk.py").read_text()
    assert "req_to_token[req_pool_idx][start_len : seqlen - 1]" in (SOURCE / "state_capturer" / "base.py").read_text()


def test_the_plug_in_names_a_package_of_ours() -> None:
    package = __import__(MODELS["SGLANG_EXTERNAL_MODEL_PACKAGE"], fromlist=["x"])
    assert "SGLang" in (inspect.getdoc(package) or "")
