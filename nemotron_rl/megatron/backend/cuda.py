"""A trainer on GPUs. Without Transformer Engine the stack has the local modules, and mamba-ssm's Triton kernels."""

from __future__ import annotations

import torch

from nemotron_rl.errors import InputError
from nemotron_rl.megatron.backend import local_modules


def prepare() -> None:
    """Check that there is a GPU, and stand in for Transformer Engine if it is not installed.

    Raises:
        InputError: without a CUDA device, or without mamba-ssm, whose scan has no other implementation on GPUs here.
    """
    if not torch.cuda.is_available():
        raise InputError("model.backend is 'cuda', but torch sees no CUDA device here; use 'cpu', or a GPU node")
    if not local_modules.mamba_kernels_are_installed():
        raise InputError("model.backend 'cuda' needs mamba-ssm, a pure-Python build is enough: pip install mamba-ssm")
    if not local_modules.transformer_engine_is_installed():
        # torch.compile of megatron's small fused functions takes longer than a short run gains by it.
        torch._dynamo.config.disable = True
        local_modules.replace_transformer_engine_parts()
