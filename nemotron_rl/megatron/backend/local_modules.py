"""Names that megatron-core takes from Transformer Engine outside its stack spec, replaced where it is not installed."""

from __future__ import annotations

import importlib.util

from nemotron_rl.megatron.backend.replacement import Replacement, apply

_NO_TE = "imported from Transformer Engine"


def transformer_engine_is_installed() -> bool:
    """Whether the stack can be built of Transformer Engine's modules."""
    return importlib.util.find_spec("transformer_engine") is not None


def mamba_kernels_are_installed() -> bool:
    """Whether mamba-ssm's Triton kernels are there; a build without its compiled extension is enough."""
    return importlib.util.find_spec("mamba_ssm") is not None


def replace_transformer_engine_parts() -> None:
    """Put the replacements in place and tell megatron-bridge how the local modules are split over TP."""
    from nemotron_rl.megatron.modules.linears import DuplicatedLinear
    from nemotron_rl.megatron.modules.norms import RMSNorm

    moe_layer = "megatron.core.transformer.moe.moe_layer"
    apply(
        [
            Replacement("megatron.core.models.hybrid.hybrid_block", "TENorm", RMSNorm, f"the final norm is {_NO_TE}"),
            Replacement(moe_layer, "HAVE_TE", True, "MoELayer refuses latent projections without it"),
            Replacement(moe_layer, "TELinear", DuplicatedLinear, f"the latent projections are {_NO_TE}"),
        ]
    )
    from megatron.bridge.models.conversion.param_mapping import AutoMapping

    for module, split in (("RMSNorm", "replicated"), ("GatedRMSNorm", "column"), ("DuplicatedLinear", "replicated")):
        AutoMapping.register_module_type(module, split)
