"""The forward pass over the trunk. The MTP head is held and proved, but not run: decoding does not need it."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from nemotron_rl.ops.norm import rms_norm
from nemotron_rl.rollout.reference import blocks
from nemotron_rl.rollout.reference.cache import AttentionCache, Cache, MambaCache
from nemotron_rl.rollout.reference.shape import NemotronHShape
from nemotron_rl.rollout.reference.weights import WeightTable


def forward(tokens_BL: Tensor, weights: WeightTable, shape: NemotronHShape, cache: Cache) -> Tensor:
    """Final hidden states [B, L, D] of every sequence's next L tokens; the cache moves on by L and has the experts."""
    cache.experts = []
    start, stop = cache.length, cache.length + tokens_BL.shape[1]
    valid_BL = cache.valid_BL[:, start:stop]
    hidden_BLD = F.embedding(tokens_BL, weights["backbone.embeddings.weight"])
    for index, (kind, layer) in enumerate(zip(shape.pattern, cache.layers, strict=True)):
        block = f"backbone.layers.{index}"
        at = f"{block}.mixer"
        normed_BLD = rms_norm(hidden_BLD, weights[f"{block}.norm.weight"], shape.eps)
        if isinstance(layer, MambaCache):
            mixed_BLD = blocks.mamba(normed_BLD, valid_BL, weights, at, shape, layer)
        elif isinstance(layer, AttentionCache):
            mixed_BLD = blocks.attention(normed_BLD, cache.valid_BL, start, weights, at, shape, layer)
        elif kind == "E":
            mixed_BLD, expert_BLK = blocks.mixture(normed_BLD, weights, at, shape)
            cache.experts.append(expert_BLK)
        else:
            mixed_BLD = blocks.dense(normed_BLD, weights, at)
        hidden_BLD = hidden_BLD + mixed_BLD
    cache.length = stop
    return rms_norm(hidden_BLD, weights["backbone.norm_f.weight"], shape.eps)


def logits(hidden: Tensor, weights: WeightTable) -> Tensor:
    """Logits [..., V] of final hidden states [..., D]."""
    return F.linear(hidden, weights["lm_head.weight"])
