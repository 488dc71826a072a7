"""Experts as SGLang 0.5.16 records them: `meta_info["routed_experts"]` of a request with `return_routed_experts`.

Base64 of int32 [tokens - 1, layers, experts per token], all layers of the model, zeros in those that are no MoE. Its
NemotronH builds `TopK` without `layer_id`, so as released it cannot record: the capture writes to layer None, a shape
error. `number_choices` gives the ids, in a model class of our own (models/nemotron_h.py) that SGLang loads through its
plug-in variable. Not run on a GPU yet. Imports no SGLang.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from nemotron_rl.checkpoint.spelling import read_pattern
from nemotron_rl.errors import NemotronRLError
from nemotron_rl.rl.routes import DTYPE, check_routes

MODELS = {"SGLANG_EXTERNAL_MODEL_PACKAGE": "nemotron_rl.rollout.sglang.models"}
"""Environment of SGLang's processes that makes them load our model class."""


@dataclass(frozen=True)
class RecordedLayout:
    """How one model's record is laid out."""

    layers: int
    moe_layers: tuple[int, ...]
    experts_per_token: int
    experts: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self:
        """Of the content of config.json."""
        pattern = read_pattern(config).main
        moe_layers = tuple(layer for layer, kind in enumerate(pattern) if kind == "E")
        return cls(len(pattern), moe_layers, config["num_experts_per_tok"], config["n_routed_experts"])

    def decode(self, meta: Mapping[str, Any], tokens: int) -> Tensor:
        """Routes [tokens - 1, MoE layers, experts per token], int16, of a request of so many tokens.

        Raises:
            NemotronRLError: there is no record, it has another size, or its experts are none.
        """
        if not meta.get("routed_experts"):
            raise NemotronRLError("SGLang gave no routed experts; was it started with enable_return_routed_experts?")
        data = bytearray(base64.b64decode(meta["routed_experts"], validate=True))
        row = 4 * self.layers * self.experts_per_token
        if len(data) != (tokens - 1) * row:
            raise NemotronRLError(
                f"SGLang's routed experts have {len(data)} bytes; expected {(tokens - 1) * row}: int32 of {tokens - 1} "
                f"tokens, {self.layers} layers and {self.experts_per_token} experts"
            )
        all_TNK = torch.frombuffer(data, dtype=torch.int32).view(tokens - 1, self.layers, self.experts_per_token)
        routes_TMK = all_TNK[:, list(self.moe_layers)]
        # Layers that recorded nothing have zeros, which is one expert several times. With one expert per token it is a
        # valid route; no published Nemotron-3 has that.
        check_routes(routes_TMK, tokens=tokens - 1, experts=self.experts)
        return routes_TMK.to(DTYPE)


def number_choices(model: Any) -> int:
    """Give the `topk` of each MoE layer the layer's number, as its experts have it; how many there are.

    Raises:
        ValueError: there are none, or experts do not know their layer: another SGLang.
    """
    found = 0
    for module in model.modules():
        topk, experts = getattr(module, "topk", None), getattr(module, "experts", None)
        if topk is None or experts is None:
            continue
        if getattr(experts, "layer_id", None) is None or not hasattr(topk, "layer_id"):
            raise ValueError(f"{type(module).__name__} does not know its layer's number; routes cannot be recorded")
        topk.layer_id = experts.layer_id
        found += 1
    if not found:
        raise ValueError("the model has no MoE layer with a `topk`; routes cannot be recorded")
    return found
