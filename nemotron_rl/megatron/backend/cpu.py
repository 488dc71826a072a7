"""Names that megatron-core hard-codes outside its stack spec, replaced for a process without CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from nemotron_rl.megatron.backend.cuda_surface import with_cuda_type_names
from nemotron_rl.megatron.backend.local_modules import replace_transformer_engine_parts
from nemotron_rl.megatron.backend.replacement import Replacement, apply


def replace_megatron_parts() -> None:
    """Put the replacements in place."""
    replace_transformer_engine_parts()
    apply([*_modules(), *_random_state(), *_optimizer(), *_context_parallel_mamba()])


def _modules() -> list[Replacement]:
    from nemotron_rl.megatron.modules.norms import GatedRMSNorm

    mixer = "megatron.core.ssm.mamba_mixer"
    return [
        Replacement(mixer, "HAVE_MAMBA_SSM", True, "MambaMixer refuses to be built without mamba-ssm"),
        Replacement(mixer, "ExtendedRMSNorm", GatedRMSNorm, "derives from mamba-ssm's gated norm"),
        Replacement(
            "megatron.core.transformer.moe.token_dispatcher",
            "maybe_move_tensor_to_cpu",
            _split_sizes,
            "it converts split sizes for all_to_all_single only when they are on a GPU",
        ),
    ]


def _split_sizes(tensor: Any, as_numpy: bool = False, record_stream: bool = False) -> Any:
    return tensor.numpy() if as_numpy and torch.is_tensor(tensor) else tensor


def _random_state() -> list[Replacement]:
    def set_state(state: Tensor, device: int = -1, graph_safe: bool = False) -> None:
        torch.set_rng_state(state)

    def get_state(device: object = "cuda", clone: bool = False, graph_safe: bool = False) -> Tensor:
        return torch.get_rng_state()

    random = "megatron.core.tensor_parallel.random"
    reason = "reads torch.cuda's generators, which a process without CUDA does not have"
    return [
        Replacement(random, "_set_cuda_rng_state", set_state, reason),
        Replacement(random, "_get_cuda_rng_state", get_state, reason),
    ]


def _optimizer() -> list[Replacement]:
    from megatron.core.optimizer import clip_grads, distrib_optimizer, optimizer

    reason = "asserts that gradients are torch.cuda.FloatTensor by name"
    clip = with_cuda_type_names(clip_grads.clip_grad_by_total_norm_fp32)
    classes = (optimizer.Float16OptimizerWithFloat16Params, distrib_optimizer.DistributedOptimizer)
    by_name = "tells parameters apart by CUDA type names"
    return [
        Replacement("megatron.core.optimizer.clip_grads", "clip_grad_by_total_norm_fp32", clip, reason),
        Replacement("megatron.core.optimizer.optimizer", "clip_grad_by_total_norm_fp32", clip, reason),
        *(
            Replacement(f"{cls.__module__}:{cls.__name__}", "__init__", with_cuda_type_names(cls.__init__), by_name)
            for cls in classes
        ),
    ]


def _context_parallel_mamba() -> list[Replacement]:
    from megatron.core.ssm import mamba_context_parallel

    from nemotron_rl.megatron.modules.documents import context_parallel_order

    def for_packed(original: Callable[..., Tensor], undo: bool) -> Callable[..., Tensor]:
        def reorder(tensor: Tensor, cp_size: int, packed_seq_params: Any = None) -> Tensor:
            if packed_seq_params is None:
                return original(tensor, cp_size)
            order = context_parallel_order(tensor.size(0), cp_size, packed_seq_params)
            return tensor[torch.argsort(order) if undo else order]

        return reorder

    owner = "megatron.core.ssm.mamba_context_parallel"
    reason = "the token order of packed sequences is imported from Transformer Engine"
    names = {"_undo_attention_load_balancing": True, "_redo_attention_load_balancing": False}
    return [
        Replacement(owner, name, for_packed(getattr(mamba_context_parallel, name), undo), reason)
        for name, undo in names.items()
    ]
