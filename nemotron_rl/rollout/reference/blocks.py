"""The mixers of Nemotron-H, each for a prompt of any length or for one more token, and the dense blocks.

B sequences · L new tokens · D hidden size · H heads · P head dim · N state · G groups · T tokens · E experts
K experts per token
Padding is on the left. It must not be seen: attention masks it; mamba's convolution sees zeros there, as before the
first token, and its dt is zero, which leaves the state as it is.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from nemotron_rl.ops.norm import gated_rms_norm
from nemotron_rl.ops.ssd import ssd_scan, ssd_step
from nemotron_rl.rollout.reference.cache import AttentionCache, MambaCache
from nemotron_rl.rollout.reference.shape import NemotronHShape
from nemotron_rl.rollout.reference.weights import WeightTable


def mamba(
    x_BLD: Tensor, valid_BL: Tensor, weights: WeightTable, at: str, shape: NemotronHShape, cache: MambaCache
) -> Tensor:
    """A Mamba-2 mixer. A prompt (L > 1) must meet an empty cache."""
    width, groups = shape.mamba_width, shape.group_width
    projected = F.linear(x_BLD, weights[f"{at}.in_proj.weight"])
    gate, xBC, dt = projected.split([width, width + 2 * groups, shape.mamba_num_heads], -1)
    dt_BLH = F.softplus(dt + weights[f"{at}.dt_bias"]) * valid_BL[..., None]
    xBC = _convolve(xBC * valid_BL[..., None], weights, at, cache)
    x, B, C = xBC.split([width, groups, groups], -1)
    x_BLHP = x.unflatten(-1, (shape.mamba_num_heads, shape.mamba_head_dim))
    B_BLGN, C_BLGN = (t.unflatten(-1, (shape.n_groups, shape.ssm_state_size)) for t in (B, C))
    A_H, D_H = -torch.exp(weights[f"{at}.A_log"]), weights[f"{at}.D"]
    if x_BLD.shape[1] == 1:
        y, state = ssd_step(cache.state_BHPN, x_BLHP[:, 0], dt_BLH[:, 0], A_H, B_BLGN[:, 0], C_BLGN[:, 0], D_H)
        y_BLHP = y[:, None]
    else:
        y_BLHP, state = ssd_scan(x_BLHP, dt_BLH, A_H, B_BLGN, C_BLGN, D_H, shape.chunk_size)
    cache.state_BHPN = state
    y = gated_rms_norm(y_BLHP.flatten(-2), gate, weights[f"{at}.norm.weight"], shape.eps, width // shape.n_groups)
    return F.linear(y, weights[f"{at}.out_proj.weight"])


def _convolve(xBC_BLW: Tensor, weights: WeightTable, at: str, cache: MambaCache) -> Tensor:
    """Causal depthwise convolution and silu; the cache keeps the last inputs."""
    inputs_BWL = torch.cat([cache.conv_BWK, xBC_BLW.transpose(1, 2)], -1)
    cache.conv_BWK = inputs_BWL[..., inputs_BWL.shape[-1] - cache.conv_BWK.shape[-1] :]
    weight = weights[f"{at}.conv1d.weight"]
    out_BWL = F.conv1d(inputs_BWL, weight, weights[f"{at}.conv1d.bias"], groups=weight.shape[0])
    return F.silu(out_BWL).transpose(1, 2)


def attention(
    x_BLD: Tensor,
    valid_BL: Tensor,
    start: int,
    weights: WeightTable,
    at: str,
    shape: NemotronHShape,
    cache: AttentionCache,
) -> Tensor:
    """Grouped-query attention without position encoding; `valid_BL` covers the cache's whole capacity."""
    length = x_BLD.shape[1]
    stop = start + length

    def heads(name: str, count: int) -> Tensor:
        projected = F.linear(x_BLD, weights[f"{at}.{name}.weight"])
        return projected.unflatten(-1, (count, shape.head_dim)).transpose(1, 2)

    query = heads("q_proj", shape.num_attention_heads)
    cache.key_BHLP[:, :, start:stop] = heads("k_proj", shape.num_key_value_heads)
    cache.value_BHLP[:, :, start:stop] = heads("v_proj", shape.num_key_value_heads)
    position = torch.arange(stop)
    # A padding row sees itself alone: a row that sees nothing is NaN, which would reach the others through 0 * NaN.
    causal_LS = position[start:stop, None] >= position[None]
    itself_LS = position[start:stop, None] == position[None]
    visible_BLS = (causal_LS & valid_BL[:, None, :stop]) | itself_LS
    out = F.scaled_dot_product_attention(
        query,
        cache.key_BHLP[:, :, :stop],
        cache.value_BHLP[:, :, :stop],
        attn_mask=visible_BLS[:, None],
        enable_gqa=True,
    )
    return F.linear(out.transpose(1, 2).flatten(-2), weights[f"{at}.o_proj.weight"])


def dense(x: Tensor, weights: WeightTable, at: str) -> Tensor:
    """down(relu(up(x))^2); also an expert that all tokens share."""
    return F.linear(_squared_relu(F.linear(x, weights[f"{at}.up_proj.weight"])), weights[f"{at}.down_proj.weight"])


def mixture(x_BLD: Tensor, weights: WeightTable, at: str, shape: NemotronHShape) -> tuple[Tensor, Tensor]:
    """Routed experts, in latent space where the config has one, and the shared expert; which they were, [B, L, K]."""
    x_TD = x_BLD.flatten(0, 1)
    gate_TK, expert_TK = _route(x_TD, weights, at, shape)
    latent_TX = F.linear(x_TD, weights[f"{at}.fc1_latent_proj.weight"]) if shape.latent else x_TD
    up_EJX, down_EXJ = (weights.experts(f"{at}.experts", part) for part in ("up_proj", "down_proj"))
    out_TX = torch.zeros_like(latent_TX)
    for expert in expert_TK.unique().tolist():
        token, slot = torch.nonzero(expert_TK == expert, as_tuple=True)
        hidden = _squared_relu(F.linear(latent_TX[token], up_EJX[expert]))
        out_TX.index_add_(0, token, F.linear(hidden, down_EXJ[expert]) * gate_TK[token, slot, None])
    routed_TD = F.linear(out_TX, weights[f"{at}.fc2_latent_proj.weight"]) if shape.latent else out_TX
    out_TD = routed_TD + dense(x_TD, weights, f"{at}.shared_experts")
    return out_TD.view_as(x_BLD), expert_TK.unflatten(0, x_BLD.shape[:2])


def _route(x_TD: Tensor, weights: WeightTable, at: str, shape: NemotronHShape) -> tuple[Tensor, Tensor]:
    """Gate weights and expert indices, [tokens, experts per token]. The bias chooses; it is not in the weight."""
    score_TE = F.linear(x_TD, weights[f"{at}.gate.weight"]).sigmoid()
    biased_TE = score_TE + weights[f"{at}.gate.e_score_correction_bias"]
    expert_TK = biased_TE.topk(shape.num_experts_per_tok, dim=-1).indices
    gate_TK = score_TE.gather(-1, expert_TK)
    if shape.norm_topk_prob:
        gate_TK = gate_TK / (gate_TK.sum(-1, keepdim=True) + 1e-20)
    return gate_TK * shape.routed_scaling_factor, expert_TK


def _squared_relu(x: Tensor) -> Tensor:
    return F.relu(x).square()
