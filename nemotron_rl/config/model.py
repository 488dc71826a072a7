"""How the model is built and split over ranks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from nemotron_rl.config.base import Frozen


class ModelSettings(Frozen):
    """What the trainer computes with."""

    backend: Literal["cpu", "cuda"] = "cpu"
    """`cpu`: plain torch modules over gloo. `cuda`: Megatron's own modules over NCCL."""
    dtype: Literal["fp32", "bf16"] = "fp32"
    """Type of parameters and activations. Expert bias is fp32 whatever this says."""
    threads: int = Field(1, ge=1)
    """CPU threads per rank."""


class ParallelSettings(Frozen):
    """Ranks and how the model is split over them. Data parallelism is what is left of the world size."""

    world_size: int = Field(1, ge=1)
    """Ranks in all."""
    tp: int = Field(1, ge=1)
    """Tensor-parallel size; above 1 it implies sequence parallelism, without which Megatron refuses to train MoE."""
    pp: int = Field(1, ge=1)
    """Pipeline-parallel size."""
    cp: int = Field(1, ge=1)
    """Context-parallel size."""
    ep: int = Field(1, ge=1)
    """Expert-parallel size."""
    etp: int = Field(1, ge=1)
    """Tensor-parallel size inside an expert."""

    @property
    def dp(self) -> int:
        """Data-parallel size."""
        return self.world_size // (self.tp * self.pp * self.cp)
