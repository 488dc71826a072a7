"""How prompts become samples."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from nemotron_rl.config.base import Frozen


class SamplingSettings(Frozen):
    """How the next token is drawn."""

    temperature: float = Field(1.0, ge=0)
    """0 is greedy."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Smallest set of tokens whose probability reaches this."""
    top_k: int = Field(0, ge=0)
    """Number of most likely tokens to draw from; 0 is all."""
    max_new_tokens: int = Field(8, ge=1)
    """Longest response, in tokens."""


class SglangSettings(Frozen):
    """The SGLang engine on the trainer's GPUs."""

    gpus_per_engine: int = Field(1, ge=1)
    """Ranks that share an engine; its experts are split over them (EP), attention and Mamba are not (DP attention)."""
    memory_fraction: float = Field(0.3, gt=0, lt=1)
    """Part of a GPU's memory for the engine's weights, KV cache and Mamba states."""
    max_running_requests: int = Field(64, ge=1)
    """Largest decode batch; CUDA graphs are captured up to it."""
    context_length: int = Field(4096, ge=2)
    """Longest prompt and response together, in tokens."""
    cuda_graphs: bool = True
    """Off starts faster and decodes slower."""
    attention: Literal["triton", "fa3", "flashinfer"] = "triton"
    """Attention kernels."""


class RolloutSettings(Frozen):
    """The engine and its samples."""

    engine: Literal["reference", "sglang"] = "reference"
    """`reference` runs on CPU in a process of the job; `sglang` on GPUs."""
    placement: Literal["shared", "separate"] = "shared"
    """`shared`: engines are on the trainer's ranks. `separate`: on `ranks` more, which only generate."""
    ranks: int = Field(0, ge=0)
    """For `placement: separate`: ranks of the training job beyond `parallel.world_size`."""
    check_prefill: bool = False
    """Also compare the engine's log-probs while decoding with its own prefill of the same tokens: noise of the engine
    alone, which a difference between engine and trainer contains."""
    samples_per_prompt: int = Field(8, ge=2)
    """Group size G of GRPO."""
    sglang: SglangSettings = SglangSettings()
    """For `engine: sglang`."""
    sampling: SamplingSettings = SamplingSettings()
    """Sampling during training."""

    @property
    def ranks_per_engine(self) -> int:
        """Ranks that hold one engine."""
        return self.sglang.gpus_per_engine if self.engine == "sglang" else 1
