"""SGLang's arguments from our settings. Pure: imports no SGLang."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nemotron_rl.config.rollout import SamplingSettings, SglangSettings
from nemotron_rl.rollout.sglang.message import LOADER


def engine_arguments(
    folder: Path, settings: SglangSettings, *, seed: int, load: bool, routes: bool = False
) -> dict[str, Any]:
    """Keyword arguments of `sglang.Engine` (0.5.16) for the checkpoint or converted folder's config.

    With `load` the engine reads the folder's weights; otherwise it makes some up, and the first sync replaces them all.
    With `routes` it can record the experts of each token.
    """
    split = {
        "tp_size": settings.gpus_per_engine,
        "ep_size": settings.gpus_per_engine,
        "dp_size": settings.gpus_per_engine,
        "enable_dp_attention": settings.gpus_per_engine > 1,
        "enable_dp_lm_head": settings.gpus_per_engine > 1,
    }
    return split | {
        "model_path": str(folder),
        "load_format": "auto" if load else "dummy",
        "custom_weight_loader": [LOADER],
        "skip_tokenizer_init": True,
        "dtype": "bfloat16",
        "random_seed": seed,
        "log_level": "warning",
        # One setting for both phases is refused when layer 0 is not attention.
        "prefill_attention_backend": settings.attention,
        "decode_attention_backend": settings.attention,
        "moe_runner_backend": "triton",  # "auto" is flashinfer's, which the sync does not know the layout of
        "mamba_backend": "triton",
        "sampling_backend": "pytorch",
        "grammar_backend": "none",
        "enable_memory_saver": True,
        "mem_fraction_static": settings.memory_fraction,
        "max_running_requests": settings.max_running_requests,
        "context_length": settings.context_length,
        "cuda_graph_max_bs_decode": settings.max_running_requests,
        "disable_decode_cuda_graph": not settings.cuda_graphs,
        "disable_prefill_cuda_graph": True,
        "disable_radix_cache": True,  # prefixes cached under old weights must not be used under new ones
        "skip_server_warmup": True,
        "enable_return_routed_experts": routes,
    }


def sampling_arguments(sampling: SamplingSettings, stop_tokens: tuple[int, ...]) -> dict[str, Any]:
    """SGLang's sampling parameters of one request."""
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or -1,
        "max_new_tokens": sampling.max_new_tokens,
        "stop_token_ids": list(stop_tokens),
    }
