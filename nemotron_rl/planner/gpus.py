"""Memory of GPU types, as the driver reports it."""

from __future__ import annotations

from nemotron_rl.config.nearest import nearest, one_of
from nemotron_rl.errors import InputError

GIB = 2**30
GPU_BYTES = {
    "a100-40gb": int(39.4 * GIB),
    "a100-80gb": int(79.2 * GIB),
    "h100": int(79.2 * GIB),
    "h200": int(139.7 * GIB),
    "b200": int(178.3 * GIB),
}
"""By name: what nvidia-smi shows as total, of which the driver keeps a little."""


def gpu_bytes(name: str) -> int:
    """Memory of a GPU type in bytes.

    Raises:
        InputError: it is not known; names the ones that are.
    """
    if name.lower() in GPU_BYTES:
        return GPU_BYTES[name.lower()]
    close = nearest(name, GPU_BYTES)
    meant = f" (did you mean {close}?)" if close else ""
    raise InputError(f"unknown GPU {name!r}{meant}; use {one_of(GPU_BYTES)}, or --gpu-memory SIZE")
