"""What the trainer computes with, chosen once per process before megatron is imported.

`cuda` leaves torch and megatron as they are, but for the faults that every backend has (`shared.py`), and for
Transformer Engine's modules where it is not installed (`local_modules.py`). `cpu` also stands in for the parts of
torch.cuda and mamba-ssm that megatron-core 0.19.2 uses unconditionally.
"""

from __future__ import annotations

import sys
from typing import Literal

_active: str | None = None


def activate(name: Literal["cpu", "cuda"]) -> None:
    """Make this process a trainer on `name`.

    Raises:
        RuntimeError: when megatron was imported already, or another backend is active.
    """
    global _active
    if _active == name:
        return
    if _active is not None:
        raise RuntimeError(f"backend {_active!r} is active in this process; start another process for {name!r}")
    if "megatron.core" in sys.modules:
        raise RuntimeError("megatron.core was imported before a backend was activated; activate it first")
    from nemotron_rl.megatron.backend import lora_import, shared

    lora_import.provide_layers_without_transformer_engine()
    if name == "cpu":
        from nemotron_rl.megatron.backend import cpu, cuda_surface

        cuda_surface.stand_in()
        cpu.replace_megatron_parts()
    else:
        from nemotron_rl.megatron.backend import cuda

        cuda.prepare()
    shared.replace_megatron_parts()
    _active = name


def active() -> str:
    """The active backend's name.

    Raises:
        RuntimeError: when none is.
    """
    if _active is None:
        raise RuntimeError("no backend is active: call nemotron_rl.megatron.backend.activate first")
    return _active
