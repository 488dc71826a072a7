"""Sizes of well-known models that limit how they can be split over ranks; known before anything is downloaded.

Only for early, friendly errors: the job checks again with the checkpoint's own config.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Geometry:
    """What parallelism must divide."""

    n_groups: int
    """Mamba2 groups."""
    n_heads: int
    """Attention query heads."""
    n_kv_heads: int
    """Attention key/value heads."""
    n_experts: int
    """Routed experts; 0 for a dense model."""
    n_mamba_heads: int
    """Mamba2 heads."""
    expert_width: int
    """Inner width of a routed expert; 0 for a dense model."""


_BY_PRESET = {
    "tiny": Geometry(n_groups=4, n_heads=4, n_kv_heads=2, n_experts=8, n_mamba_heads=8, expert_width=128),
    "nano-4b": Geometry(n_groups=8, n_heads=40, n_kv_heads=8, n_experts=0, n_mamba_heads=96, expert_width=0),
    "nano-30b-a3b": Geometry(n_groups=8, n_heads=32, n_kv_heads=2, n_experts=128, n_mamba_heads=64, expert_width=1856),
    "super-120b-a12b": Geometry(
        n_groups=8, n_heads=32, n_kv_heads=2, n_experts=512, n_mamba_heads=128, expert_width=2688
    ),
    "ultra-550b-a55b": Geometry(
        n_groups=8, n_heads=64, n_kv_heads=2, n_experts=512, n_mamba_heads=256, expert_width=5120
    ),
}


def geometry_of(uri: str) -> Geometry | None:
    """The geometry of `synth://PRESET` or of NVIDIA's `hf://nvidia/NVIDIA-Nemotron-3-…`; None when it is not known."""
    name = uri.lower().partition("@")[0]
    if name.startswith("synth://"):
        return _BY_PRESET.get(name.removeprefix("synth://"))
    if name.startswith("hf://nvidia/nvidia-nemotron-3-"):
        return _BY_PRESET.get(name.removeprefix("hf://nvidia/nvidia-nemotron-3-").removesuffix("-bf16"))
    return None
