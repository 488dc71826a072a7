"""Builds the HybridModel of a checkpoint's config through megatron-bridge, wrapped in megatron's DDP, and loads it.

A start folder is either a Hugging Face checkpoint or the result of `convert` (config, tokenizer, `torch_dist/`).
`exact_model` builds the same model for conversion: nothing is trained, and no value may be rounded.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from megatron.bridge import AutoBridge
from megatron.core.distributed import DistributedDataParallelConfig
from torch import nn
from transformers import AutoConfig

from nemotron_rl.checkpoint.converted import is_converted, source_tensors
from nemotron_rl.checkpoint.spelling import read_pattern
from nemotron_rl.config.model import ModelSettings, ParallelSettings
from nemotron_rl.config.training import MoeSettings, MtpSettings
from nemotron_rl.megatron import torch_dist
from nemotron_rl.megatron.backend.local_modules import transformer_engine_is_installed
from nemotron_rl.megatron.modules.output_layer import DeferredOutputLayer, defer_output_layers
from nemotron_rl.megatron.routing_replay import RoutingReplay, attach

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class MegatronModel:
    """A model and what is needed to name its weights."""

    bridge: AutoBridge
    """Names and layouts, both ways."""
    config: Any
    """The provider, which is also the model's TransformerConfig."""
    chunks: Sequence[nn.Module]
    """Model chunks of this rank, wrapped in DDP when they are to be trained."""
    routing: RoutingReplay = field(default_factory=lambda: RoutingReplay([], []))
    """What its routers replay; nothing unless a batch has routes."""

    @property
    def mtp_depths(self) -> int:
        """Number of MTP predictions per position; 0 without a head."""
        return int(self.config.mtp_num_layers or 0)

    def unwrapped(self) -> list[Any]:
        """The chunks without DDP."""
        return [getattr(chunk, "module", chunk) for chunk in self.chunks]

    def hybrid(self) -> list[Any]:
        """The HybridModels themselves, below DDP and a mixed-precision wrapper."""
        return [getattr(chunk, "module", chunk) for chunk in self.unwrapped()]

    def output_layer(self) -> DeferredOutputLayer:
        """The output layer; only the last pipeline stage has it."""
        layer: DeferredOutputLayer = self.hybrid()[-1].output_layer
        return layer


def build_model(
    start: Path,
    model: ModelSettings,
    parallel: ParallelSettings,
    *,
    mtp: MtpSettings | None = None,
    moe: MoeSettings | None = None,
    trainable: bool = True,
    distributed_optimizer: bool = False,
) -> MegatronModel:
    """The model of `start` with its weights. Process groups must exist.

    `distributed_optimizer` must be what the optimizer's settings say: gradients are laid out for it.
    Without `mtp` the head is built, loaded and exported, but never trained; without `moe` the expert bias is frozen.
    """
    bridge = AutoBridge.from_hf_config(AutoConfig.from_pretrained(start))
    converted = is_converted(start)
    provider = bridge.to_megatron_provider(load_weights=not converted, hf_path=None if converted else start)
    _configure(provider, start, model, parallel, mtp)
    frozen = moe is None or moe.expert_bias == "frozen"
    provider.moe_router_bias_update_rate = 0.0 if moe is None or frozen else moe.expert_bias_rate
    provider.finalize()
    chunks = provider.provide_distributed_model(
        wrap_with_ddp=trainable,
        ddp_config=_ddp_config(distributed_optimizer) if trainable else None,
        use_cpu_initialization=model.backend == "cpu",
        fp16=False,
        bf16=model.dtype == "bf16",
        mixed_precision_wrapper=None if model.dtype == "fp32" else _float16_module(),
    )
    built = MegatronModel(bridge, provider, chunks)
    if converted:
        torch_dist.load(start, built.unwrapped())
    pattern = read_pattern(json.loads((start / "config.json").read_text())).main
    return replace(built, routing=attach(built.hybrid(), pattern, expert_bias_frozen=frozen))


def exact_model(start: Path, model: ModelSettings, parallel: ParallelSettings) -> MegatronModel:
    """The model of `start`, a checkpoint or a converted folder, each parameter in its source's own type.

    `model.dtype` does not matter. Process groups must exist.

    Raises:
        CheckpointError: The tensors are not those of the config's model, or the converted folder is damaged.
    """
    from nemotron_rl.megatron.source_types import check_types, main_type, match_source_types

    specs = source_tensors(start)
    check_types(specs, start)
    bridge = AutoBridge.from_hf_config(AutoConfig.from_pretrained(start))
    provider = bridge.to_megatron_provider(load_weights=False)
    provider.perform_initialization = False  # all weights are loaded
    dtype = main_type(specs)
    _configure(provider, start, model.model_copy(update={"dtype": dtype}), parallel, None)
    provider.finalize()
    # No mixed-precision wrapper: it would round what the checkpoint has in fp32.
    chunks = provider.provide_distributed_model(
        wrap_with_ddp=False,
        use_cpu_initialization=model.backend == "cpu",
        fp16=False,
        bf16=False,
        mixed_precision_wrapper=None,
    )
    built = MegatronModel(bridge, provider, chunks)
    match_source_types(built, specs, start)
    if is_converted(start):
        torch_dist.load(start, built.unwrapped())
    else:
        bridge.load_hf_weights(list(chunks), start)
    return built


def _configure(
    provider: Any, start: Path, model: ModelSettings, parallel: ParallelSettings, mtp: MtpSettings | None
) -> None:
    settings: dict[str, Any] = {
        "tensor_model_parallel_size": parallel.tp,
        "pipeline_model_parallel_size": parallel.pp,
        "context_parallel_size": parallel.cp,
        "expert_model_parallel_size": parallel.ep,
        "expert_tensor_parallel_size": parallel.etp,
        "sequence_parallel": parallel.tp > 1,
        "params_dtype": _DTYPES[model.dtype],
        "pipeline_dtype": _DTYPES[model.dtype],
        "autocast_dtype": _DTYPES[model.dtype],
        "bf16": model.dtype == "bf16",
        "fp16": False,
        "calculate_per_token_loss": True,  # one global divisor, whatever the micro-batches
        "variable_seq_lengths": True,
        # RL moves the router by the policy's gradient alone, and the expert bias is part of the checkpoint.
        "moe_aux_loss_coeff": 0.0,
        "moe_router_load_balancing_type": "none",
        "moe_router_enable_expert_bias": True,
        "moe_router_bias_update_rate": 0.0,
        # megatron-core 0.19.2 raises in training for latent MoE with overlap.
        "moe_shared_expert_overlap": False,
        "mtp_detach_heads": mtp.detach_heads if mtp else True,
        "use_cpu_initialization": model.backend == "cpu",
        # megatron-bridge 0.6.2 shares one layer among all depths unless the config forbids it.
        "mtp_use_repeated_layer": provider.mtp_use_repeated_layer and not _has_weights_per_depth(start, provider),
    }
    if model.backend == "cpu" or not transformer_engine_is_installed():
        settings |= _local_settings()
    for name, value in settings.items():
        if not hasattr(provider, name):
            raise AttributeError(f"megatron-bridge's provider has no setting {name!r} any more")
        setattr(provider, name, value)
    provider.register_pre_wrap_hook(_separate_experts)
    provider.register_pre_wrap_hook(defer_output_layers)


def _has_weights_per_depth(start: Path, provider: Any) -> bool:
    """Whether the source has MTP layers beyond those of the first depth."""
    if (provider.mtp_num_layers or 0) < 2:
        return False
    second_depth = f"mtp.layers.{len(provider.mtp_hybrid_override_pattern)}."
    return any(spec.name.startswith(second_depth) for spec in source_tensors(start))


def _local_settings() -> dict[str, Any]:
    """Local modules in the stack, and none of the kernels that come with Transformer Engine or Apex."""
    from nemotron_rl.megatron.modules.stack import local_stack_spec

    fused = (
        "moe_grouped_gemm",
        "moe_permute_fusion",
        "gradient_accumulation_fusion",
        "cross_entropy_loss_fusion",
        "masked_softmax_fusion",
        "bias_dropout_fusion",
        "persist_layer_norm",
        "apply_rope_fusion",
    )
    return dict.fromkeys(fused, False) | {"hybrid_stack_spec": local_stack_spec}


def _separate_experts(models: list[Any]) -> list[Any]:
    """Treat experts as expert-parallel at EP 1 too, as megatron does at every other size.

    Otherwise the optimizer has one part there and two elsewhere, and their checkpoints do not load into each other.
    """
    for model in models:
        for name, parameter in model.named_parameters():
            if ".experts." in name:
                parameter.allreduce = False
    return models


def _ddp_config(distributed_optimizer: bool) -> DistributedDataParallelConfig:
    return DistributedDataParallelConfig(
        grad_reduce_in_fp32=True, overlap_grad_reduce=False, use_distributed_optimizer=distributed_optimizer
    )


def _float16_module() -> Any:
    from megatron.core.transformer.module import Float16Module

    return Float16Module
