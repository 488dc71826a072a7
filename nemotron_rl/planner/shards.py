"""Which share of a model's parameters each rank holds, from the checkpoint's tensor table and the split over ranks.

Exact: tests hold it against the parameters of real Megatron models at every kind of split.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from nemotron_rl.checkpoint.spelling import Pattern, read_pattern
from nemotron_rl.checkpoint.tally import layer_of
from nemotron_rl.checkpoint.tensor_table import TensorSpec, tensor_table
from nemotron_rl.config.model import ParallelSettings

Kind = Literal["whole", "tensor", "key_value", "expert", "bias"]
"""How ranks share a tensor: `whole` on each; split over TP; keys and values, of which a rank has a head at least; split
over EP and ETP; the expert bias, which is whole, fp32 and not trained."""

_PREFIX = re.compile(r"^(backbone|mtp)\.layers\.\d+\.")
_KINDS: Mapping[str, Kind] = {
    "backbone.embeddings.weight": "tensor",
    "lm_head.weight": "tensor",
    "eh_proj.weight": "tensor",
    "mixer.in_proj.weight": "tensor",
    "mixer.in_proj.bias": "tensor",
    "mixer.conv1d.weight": "tensor",
    "mixer.conv1d.bias": "tensor",
    "mixer.A_log": "tensor",
    "mixer.D": "tensor",
    "mixer.dt_bias": "tensor",
    "mixer.norm.weight": "tensor",
    "mixer.out_proj.weight": "tensor",
    "mixer.q_proj.weight": "tensor",
    "mixer.k_proj.weight": "key_value",
    "mixer.v_proj.weight": "key_value",
    "mixer.o_proj.weight": "tensor",
    "mixer.up_proj.weight": "tensor",
    "mixer.up_proj.bias": "tensor",
    "mixer.down_proj.weight": "tensor",
    "mixer.shared_experts.up_proj.weight": "tensor",
    "mixer.shared_experts.up_proj.bias": "tensor",
    "mixer.shared_experts.down_proj.weight": "tensor",
    "mixer.gate.e_score_correction_bias": "bias",
}
"""By name within a layer; every other tensor is whole: norms, routers, latent projections, biases of outputs."""

Parameters = Mapping[Kind, int]
"""Number of parameters of a part of the model."""


@dataclass(frozen=True)
class ModelSizes:
    """Parameters of each part of a model, before any split."""

    pattern: Pattern
    kv_heads: int
    """Attention key/value heads."""
    layers: tuple[Parameters, ...]
    """Of each trunk layer."""
    embedding: Parameters
    head: Parameters
    """Final norm and output layer."""
    mtp: Parameters
    """All steps of the MTP head that have weights of their own."""


@dataclass(frozen=True)
class Shard:
    """Parameters that one rank holds."""

    dense: int
    """Of everything but experts; data-parallel ranks hold the same."""
    expert: int
    """Of experts; held once per group of ep x etp x pp ranks."""
    bias: int
    """Expert biases: fp32, without gradient."""

    @property
    def trained(self) -> int:
        """Parameters with a gradient."""
        return self.dense + self.expert


def model_sizes(config: Mapping[str, Any]) -> ModelSizes:
    """Sizes of the model that a config.json describes.

    Raises:
        CheckpointError: the config is broken.
    """
    pattern = read_pattern(config)
    layers = [Counter[Kind]() for _ in pattern.main]
    embedding, head, mtp = Counter[Kind](), Counter[Kind](), Counter[Kind]()
    for tensor in tensor_table(config):
        layer = layer_of(tensor.name)
        if layer is not None:
            layers[layer][_kind(tensor)] += tensor.params
        elif tensor.name.startswith("backbone.embeddings."):
            embedding[_kind(tensor)] += tensor.params
        elif tensor.name.startswith("mtp."):
            mtp[_kind(tensor)] += tensor.params
        else:
            head[_kind(tensor)] += tensor.params
    if pattern.mtp_depth > 1 and config.get("mtp_use_repeated_layer", True):  # megatron-bridge 0.6.2's default
        mtp = Counter({kind: count // pattern.mtp_depth for kind, count in mtp.items()})
    return ModelSizes(pattern, int(config["num_key_value_heads"]), tuple(layers), embedding, head, mtp)


def stage_shards(sizes: ModelSizes, parallel: ParallelSettings) -> list[Shard]:
    """What a rank of each pipeline stage holds. The last stage has the MTP head, and for it an embedding of its own."""
    per_stage = len(sizes.layers) // parallel.pp
    shards = []
    for stage in range(parallel.pp):
        parts = list(sizes.layers[stage * per_stage : (stage + 1) * per_stage])
        last = stage == parallel.pp - 1
        if stage == 0 or (last and sizes.mtp):
            parts.append(sizes.embedding)
        if last:
            parts += [sizes.head, sizes.mtp]
        shards.append(_shard(parts, sizes.kv_heads, parallel))
    return shards


def _shard(parts: Iterable[Parameters], kv_heads: int, parallel: ParallelSettings) -> Shard:
    total = sum((Counter(part) for part in parts), Counter[Kind]())
    tp = parallel.tp
    dense = total["whole"] + total["tensor"] // tp + total["key_value"] // min(tp, kv_heads)
    return Shard(dense, total["expert"] // (parallel.ep * parallel.etp), total["bias"])


def _kind(tensor: TensorSpec) -> Kind:
    name = _PREFIX.sub("", tensor.name)
    return "expert" if name.startswith("mixer.experts.") else _KINDS.get(name, "whole")
