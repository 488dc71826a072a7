"""Nemotron-H's trunk with given experts, slowly: every expert computes every token, and a mask picks.

L tokens of one sequence · D hidden size · E experts · M MoE layers · K experts per token · V vocabulary
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nemotron_rl.ops.norm import rms_norm
from nemotron_rl.rollout.reference import blocks
from nemotron_rl.rollout.reference.cache import AttentionCache, Cache, MambaCache
from nemotron_rl.rollout.reference.shape import NemotronHShape


def logprobs(
    tokens: list[int], weights: Mapping[str, Tensor], config: Mapping[str, Any], routes_LMK: Tensor | None
) -> tuple[Tensor, Tensor]:
    """log p of every token but the first, [L - 1], and the routes, [L, M, K]; a -1 of `routes_LMK` is chosen here."""
    shape = NemotronHShape.from_config(config)
    tokens_BL = torch.tensor([tokens])
    cache = Cache(shape, torch.ones_like(tokens_BL, dtype=torch.bool), len(tokens))
    hidden_BLD = F.embedding(tokens_BL, weights["backbone.embeddings.weight"])
    used: list[Tensor] = []
    for index, (kind, layer) in enumerate(zip(shape.pattern, cache.layers, strict=True)):
        block = f"backbone.layers.{index}"
        at = f"{block}.mixer"
        x_BLD = rms_norm(hidden_BLD, weights[f"{block}.norm.weight"], shape.eps)
        if isinstance(layer, MambaCache):
            out_BLD = blocks.mamba(x_BLD, cache.valid_BL, weights, at, shape, layer)  # type: ignore[arg-type]
        elif isinstance(layer, AttentionCache):
            out_BLD = blocks.attention(x_BLD, cache.valid_BL, 0, weights, at, shape, layer)  # type: ignore[arg-type]
        elif kind == "E":
            given = None if routes_LMK is None else routes_LMK[:, len(used)]
            out_LD, experts_LK = _masked_experts(x_BLD[0], weights, at, shape, given)
            used.append(experts_LK)
            out_BLD = out_LD[None]
        else:
            out_BLD = blocks.dense(x_BLD, weights, at)  # type: ignore[arg-type]
        hidden_BLD = hidden_BLD + out_BLD
    final_LD = rms_norm(hidden_BLD, weights["backbone.norm_f.weight"], shape.eps)[0]
    logprob_LV = F.linear(final_LD[:-1], weights["lm_head.weight"]).log_softmax(-1)
    return logprob_LV.gather(1, tokens_BL[0, 1:, None]).squeeze(1), torch.stack(used, 1)


def _masked_experts(
    x_LD: Tensor, weights: Mapping[str, Tensor], at: str, shape: NemotronHShape, given_LK: Tensor | None
) -> tuple[Tensor, Tensor]:
    score_LE = torch.sigmoid(x_LD @ weights[f"{at}.gate.weight"].T)
    biased_LE = score_LE.detach() + weights[f"{at}.gate.e_score_correction_bias"]
    own_LK = torch.sort(biased_LE, dim=-1, descending=True, stable=True).indices[:, : shape.num_experts_per_tok]
    experts_LK = own_LK if given_LK is None else torch.where(given_LK < 0, own_LK, given_LK.long())
    mask_LE = F.one_hot(experts_LK, score_LE.shape[1]).sum(1)
    gate_LE = score_LE * mask_LE
    if shape.norm_topk_prob:
        gate_LE = gate_LE / gate_LE.sum(-1, keepdim=True)
    gate_LE = gate_LE * shape.routed_scaling_factor
    latent_LX = F.linear(x_LD, weights[f"{at}.fc1_latent_proj.weight"]) if shape.latent else x_LD
    out_LX = torch.zeros_like(latent_LX)
    for expert in range(score_LE.shape[1]):
        hidden = F.relu(latent_LX @ weights[f"{at}.experts.{expert}.up_proj.weight"].T).square()
        out_LX = out_LX + gate_LE[:, expert, None] * (hidden @ weights[f"{at}.experts.{expert}.down_proj.weight"].T)
    out_LD = F.linear(out_LX, weights[f"{at}.fc2_latent_proj.weight"]) if shape.latent else out_LX
    return out_LD + blocks.dense(x_LD, weights, f"{at}.shared_experts"), experts_LK  # type: ignore[arg-type]
