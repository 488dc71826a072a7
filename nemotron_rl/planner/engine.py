"""Memory of the colocated rollout engine on each GPU: weights, key/value cache and Mamba states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd

from nemotron_rl.config.model import ParallelSettings
from nemotron_rl.planner.shards import ModelSizes, Parameters

ENGINE_ITEMSIZE = 2
"""Engines hold weights and caches in bf16; the scan's state is fp32."""
RUNNING_MAX = 256
"""Requests that an engine is assumed to run at once per attention group; more wait."""


@dataclass(frozen=True)
class EngineMemory:
    """Bytes on one GPU, and what they are for."""

    weights: float
    kv_cache: float
    mamba_state: float
    requests: int
    """Requests at once per attention group."""
    attention_tp: int
    """GPUs of an attention group."""


def engine_memory(
    sizes: ModelSizes,
    symbols: Mapping[str, int],
    *,
    n_groups: int,
    ssm_state: int,
    world_size: int,
    engine_gpus: int,
    requests: int,
    tokens_per_request: int,
) -> EngineMemory:
    """The engine's share of one GPU.

    Attention and Mamba are split over the largest group of GPUs that divides the Mamba groups, and replicated over the
    rest of the engine (data-parallel attention); experts are split over the whole engine.

    Args:
        sizes: Parameters of the model's parts.
        symbols: Widths by the tensor table's symbols.
        n_groups: Mamba groups.
        ssm_state: State size of the scan.
        world_size: GPUs of the run.
        engine_gpus: GPUs of one engine.
        requests: Requests of a step, all engines together.
        tokens_per_request: Longest prompt and response together.
    """
    attention_tp = gcd(engine_gpus, n_groups)
    split = ParallelSettings(world_size=engine_gpus, tp=attention_tp, ep=engine_gpus)
    parts: list[Parameters] = [*sizes.layers, sizes.embedding, sizes.head, sizes.mtp]
    dense = sum(count for part in parts for kind, count in part.items() if kind not in ("expert", "bias"))
    experts = sum(part.get("expert", 0) for part in parts)
    weights = ENGINE_ITEMSIZE * (dense / split.tp + experts / split.ep)
    groups = world_size // attention_tp
    running = min(RUNNING_MAX, -(-requests // groups))
    pattern = sizes.pattern.main + sizes.pattern.mtp
    heads_split = min(attention_tp, sizes.kv_heads)
    kv = 2 * ENGINE_ITEMSIZE * symbols["K"] / heads_split * pattern.count("*") * tokens_per_request * running
    scan, conv = 4 * symbols.get("D", 0) * ssm_state, ENGINE_ITEMSIZE * symbols.get("C", 0) * symbols.get("W", 0)
    mamba = (scan + conv) / attention_tp * pattern.count("M") * running
    return EngineMemory(weights, kv, mamba, running, attention_tp)
