"""The stack spec of HybridModel without Transformer Engine: megatron's own hybrid_stack_spec, module for module."""

from __future__ import annotations

from functools import partial

import torch
from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec_for_backend
from megatron.core.models.hybrid.hybrid_block import HybridStack, HybridStackSubmodules
from megatron.core.ssm.mamba_layer import MambaLayer, MambaLayerSubmodules
from megatron.core.ssm.mamba_mixer import MambaMixer, MambaMixerSubmodules
from megatron.core.ssm.mlp_layer import MLPLayer
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.mlp import MLP, MLPSubmodules
from megatron.core.transformer.multi_token_prediction import (
    MultiTokenPredictionBlock,
    MultiTokenPredictionBlockSubmodules,
    MultiTokenPredictionLayer,
    MultiTokenPredictionLayerSubmodules,
)
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_layer import (
    MoETransformerLayer,
    TransformerLayer,
    TransformerLayerSubmodules,
)

from nemotron_rl.megatron.modules.attention import CoreAttention
from nemotron_rl.megatron.modules.experts import GroupedSpecProvider
from nemotron_rl.megatron.modules.linears import LocalLayerNormColumnParallelLinear
from nemotron_rl.megatron.modules.mamba import TorchMambaMixer
from nemotron_rl.megatron.modules.norms import RMSNorm


def local_stack_spec(_: object = None) -> ModuleSpec:
    """The spec; the argument is the provider, which megatron-bridge passes to a callable spec."""
    return ModuleSpec(
        module=HybridStack,
        submodules=HybridStackSubmodules(
            mamba_layer=_mamba_layer(),
            attention_layer=_attention_layer(),
            mlp_layer=_mlp_layer(),
            moe_layer=_moe_layer(),
            mtp_block_spec=_mtp_block(),
        ),
    )


def _mamba_layer() -> ModuleSpec:
    projections = MambaMixerSubmodules(in_proj=LocalLayerNormColumnParallelLinear, out_proj=RowParallelLinear)
    # Megatron's own mixer runs mamba-ssm's kernels, which need a GPU.
    mixer = ModuleSpec(module=MambaMixer if torch.cuda.is_available() else TorchMambaMixer, submodules=projections)
    return ModuleSpec(module=MambaLayer, submodules=MambaLayerSubmodules(mixer=mixer, mamba_bda=get_bias_dropout_add))


def _attention_layer() -> ModuleSpec:
    attention = ModuleSpec(
        module=SelfAttention,
        params={"attn_mask_type": AttnMaskType.causal},
        submodules=SelfAttentionSubmodules(
            linear_qkv=LocalLayerNormColumnParallelLinear,
            core_attention=CoreAttention,
            linear_proj=RowParallelLinear,
        ),
    )
    return ModuleSpec(
        module=TransformerLayer,
        submodules=TransformerLayerSubmodules(self_attention=attention, self_attn_bda=get_bias_dropout_add),
    )


def _mlp_layer() -> ModuleSpec:
    linears = MLPSubmodules(linear_fc1=LocalLayerNormColumnParallelLinear, linear_fc2=RowParallelLinear)
    return ModuleSpec(
        module=MLPLayer,
        submodules=TransformerLayerSubmodules(
            mlp=partial(MLP.as_mlp_submodule, submodules=linears), mlp_bda=get_bias_dropout_add
        ),
    )


def _moe_layer() -> ModuleSpec:
    # num_experts only says that there are any; the model's config has the number.
    experts = get_moe_module_spec_for_backend(GroupedSpecProvider(), num_experts=1)
    return ModuleSpec(
        module=MoETransformerLayer,
        submodules=TransformerLayerSubmodules(pre_mlp_layernorm=RMSNorm, mlp=experts, mlp_bda=get_bias_dropout_add),
    )


def _mtp_block() -> ModuleSpec:
    layer = ModuleSpec(
        module=MultiTokenPredictionLayer,
        submodules=MultiTokenPredictionLayerSubmodules(
            enorm=RMSNorm, hnorm=RMSNorm, eh_proj=ColumnParallelLinear, mtp_model_layer=None, layer_norm=RMSNorm
        ),
    )
    return ModuleSpec(
        module=MultiTokenPredictionBlock, submodules=MultiTokenPredictionBlockSubmodules(layer_specs=[layer])
    )
