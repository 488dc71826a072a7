"""The sizes of a Nemotron-H config under the short symbols that the tensor table uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nemotron_rl.checkpoint.dtypes import CONFIG_DTYPES
from nemotron_rl.checkpoint.spelling import Pattern, read_pattern
from nemotron_rl.checkpoint.strict_json import shown
from nemotron_rl.errors import CheckpointError

LARGEST, MOST_EXPERTS = 1 << 32, 1 << 16
"""No size in a config may be larger: a broken file must not make us count to a billion."""


@dataclass(frozen=True)
class Dimensions:
    """What decides names and shapes: the pattern, the sizes by symbol, the options that are on, and the dtype."""

    pattern: Pattern
    sizes: Mapping[str, int]
    """By symbol; those of block types that the pattern lacks are absent."""
    options: frozenset[str]
    """Names of the options that are on: `conv_bias`, `mamba_bias`, `mlp_bias`, `latent`, `untied`."""
    dtype: str
    """Safetensors code of every tensor that has no type of its own."""


def dimensions(config: Mapping[str, Any], where: str = "config.json") -> Dimensions:
    """Read what the tensor table needs from a config.

    Raises:
        CheckpointError: A key is missing, is not a positive whole number, or does not fit another.
    """
    pattern = read_pattern(config, where)
    sizes = _Reader(config, where)
    letters = set(pattern.main + pattern.mtp)
    out = {"H": sizes("hidden_size"), "2H": 2 * sizes("hidden_size"), "V": sizes("vocab_size"), "1": 1}
    out |= _attention(sizes)
    if "M" in letters:
        out |= _mamba(sizes)
    if "-" in letters:
        out["I"] = sizes("intermediate_size")
    if "E" in letters:
        out |= _moe(sizes)
    return Dimensions(pattern, out, _options(config), _dtype(config, where))


class _Reader:
    """Positive whole numbers of a config."""

    def __init__(self, config: Mapping[str, Any], where: str) -> None:
        self.config, self.where = config, where

    def __call__(self, key: str, largest: int = LARGEST) -> int:
        value = self.config.get(key)
        if value is None:
            raise CheckpointError(f"{self.where}: `{key}` is missing; the shapes of the tensors depend on it")
        if type(value) is not int or not 0 < value <= largest:
            raise CheckpointError(
                f"{self.where}: `{key}` must be a positive whole number up to {largest}, not {shown(value)}"
            )
        return value

    def divides(self, small: str, large: str) -> None:
        """Refuse sizes of which `large` is not a multiple of `small`."""
        if self(large) % self(small):
            raise CheckpointError(
                f"{self.where}: `{large}` ({self(large)}) must be a multiple of `{small}` ({self(small)})"
            )

    def at_most(self, small: str, large: str) -> None:
        """Refuse a `small` above `large`."""
        if self(small) > self(large):
            raise CheckpointError(f"{self.where}: `{small}` ({self(small)}) must be at most `{large}` ({self(large)})")


def _attention(sizes: _Reader) -> dict[str, int]:
    sizes.divides("num_key_value_heads", "num_attention_heads")
    head = sizes("head_dim")
    return {"Q": sizes("num_attention_heads") * head, "K": sizes("num_key_value_heads") * head}


def _mamba(sizes: _Reader) -> dict[str, int]:
    """Mamba-2's inner width is heads times head size; `expand` is not read (Nano-4B's would be wrong)."""
    sizes.divides("n_groups", "mamba_num_heads")
    heads = sizes("mamba_num_heads")
    inner = heads * sizes("mamba_head_dim")
    conv = inner + 2 * sizes("n_groups") * sizes("ssm_state_size")
    return {"m": heads, "D": inner, "C": conv, "P": inner + conv + heads, "W": sizes("conv_kernel")}


def _moe(sizes: _Reader) -> dict[str, int]:
    sizes.at_most("num_experts_per_tok", "n_routed_experts")
    latent = sizes.config.get("moe_latent_size") is not None
    return {
        "N": sizes("n_routed_experts", MOST_EXPERTS),
        "J": sizes("moe_intermediate_size"),
        "S": sizes("moe_shared_expert_intermediate_size"),
        "X": sizes("moe_latent_size" if latent else "hidden_size"),
    }


def _options(config: Mapping[str, Any]) -> frozenset[str]:
    on = {
        "conv_bias": config.get("use_conv_bias", True),
        "mamba_bias": config.get("use_bias", False),
        "mlp_bias": config.get("mlp_bias", False),
        "latent": config.get("moe_latent_size") is not None,
        "untied": not config.get("tie_word_embeddings", False),
    }
    return frozenset(name for name, value in on.items() if value)


def _dtype(config: Mapping[str, Any], where: str) -> str:
    key = "dtype" if config.get("dtype") is not None else "torch_dtype"
    name = config.get(key) or "bfloat16"
    if not isinstance(name, str) or name not in CONFIG_DTYPES:
        raise CheckpointError(f"{where}: `{key}` is {shown(name)}; expected one of {', '.join(CONFIG_DTYPES)}")
    return CONFIG_DTYPES[name]
