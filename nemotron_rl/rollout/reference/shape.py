"""The numbers of a Nemotron-H config that the forward pass needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from nemotron_rl.checkpoint.spelling import read_pattern
from nemotron_rl.errors import CheckpointError


@dataclass(frozen=True)
class NemotronHShape:
    """Names as in the Hugging Face config, where that has them."""

    pattern: str
    """Block types of the trunk: M mamba, * attention, E mixture of experts, - dense."""
    head_dim: int
    num_attention_heads: int
    num_key_value_heads: int
    mamba_num_heads: int
    mamba_head_dim: int
    n_groups: int
    ssm_state_size: int
    conv_kernel: int
    chunk_size: int
    eps: float
    num_experts: int
    num_experts_per_tok: int
    norm_topk_prob: bool
    routed_scaling_factor: float
    latent: bool
    """Whether experts work in a smaller latent space."""

    @property
    def mamba_width(self) -> int:
        """Channels of a mamba block's inner stream."""
        return self.mamba_num_heads * self.mamba_head_dim

    @property
    def group_width(self) -> int:
        """Channels of B, and of C."""
        return self.n_groups * self.ssm_state_size

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Read it from the content of config.json.

        Raises:
            CheckpointError: for group-limited routing, which no published Nemotron-3 uses, or biased projections.
        """
        if config.get("n_group", 1) != 1:
            raise CheckpointError(f"n_group is {config['n_group']}; the reference engine routes over one group only")
        for key in ("use_bias", "mlp_bias", "attention_bias", "mamba_proj_bias"):
            if config.get(key):
                raise CheckpointError(f"{key} is true; the reference engine knows projections without bias only")
        return cls(
            pattern=read_pattern(config).main,
            head_dim=config["head_dim"],
            num_attention_heads=config["num_attention_heads"],
            num_key_value_heads=config["num_key_value_heads"],
            mamba_num_heads=config["mamba_num_heads"],
            mamba_head_dim=config["mamba_head_dim"],
            n_groups=config["n_groups"],
            ssm_state_size=config["ssm_state_size"],
            conv_kernel=config["conv_kernel"],
            chunk_size=config["chunk_size"],
            eps=config["layer_norm_epsilon"],
            num_experts=config.get("n_routed_experts") or 0,
            num_experts_per_tok=config.get("num_experts_per_tok") or 0,
            norm_topk_prob=config.get("norm_topk_prob", True),
            routed_scaling_factor=config.get("routed_scaling_factor", 1.0),
            latent=config.get("moe_latent_size") is not None,
        )
