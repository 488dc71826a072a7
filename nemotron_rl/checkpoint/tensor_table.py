"""Names, shapes and types of every tensor of a Nemotron-H checkpoint, from one table.

The names are NVIDIA's, as published (`backbone.layers.7.mixer.q_proj.weight`), not those that transformers saves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from nemotron_rl.checkpoint.dimensions import Dimensions, dimensions
from nemotron_rl.checkpoint.dtypes import itemsize
from nemotron_rl.errors import CheckpointError

MOST_TENSORS = 500_000
"""Ultra has 50,000; a broken config must not make us list a billion."""
Init = Literal["ones", "small", "a_log", "dt_bias", "expert_bias", "embedding", "input", "output"]
"""How `synth` draws a tensor: see `nemotron_rl.checkpoint.initial`."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor that a checkpoint has."""

    name: str
    dtype: str
    """Safetensors code, such as BF16."""
    shape: tuple[int, ...]
    init: Init = "input"

    @property
    def params(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the data."""
        return self.params * itemsize(self.dtype)


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of the table: `shape` in symbols of `Dimensions.sizes`, present when every option in `when` is on."""

    name: str
    shape: str
    init: Init
    when: frozenset[str] = frozenset()
    dtype: str | None = None


def _row(name: str, shape: str, init: Init, *when: str, dtype: str | None = None) -> _Row:
    return _Row(name, shape, init, frozenset(when), dtype)


# H hidden · V vocabulary · Q, K query and key width · m mamba heads · D mamba inner width · C convolution channels
# P rows of in_proj (D + C + m) · W convolution width · I dense width · N experts · J expert width · X expert input
# width (latent, or H) · S shared expert's width
_BEFORE = (_row("backbone.embeddings.weight", "V H", "embedding"),)
_AFTER = (_row("backbone.norm_f.weight", "H", "ones"), _row("lm_head.weight", "V H", "input", "untied"))
_EVERY_LAYER = (_row("norm.weight", "H", "ones"),)
_EXPERT = (
    _row("mixer.experts.{e}.up_proj.weight", "J X", "input"),
    _row("mixer.experts.{e}.up_proj.bias", "J", "small", "mlp_bias"),
    _row("mixer.experts.{e}.down_proj.weight", "X J", "output"),
    _row("mixer.experts.{e}.down_proj.bias", "X", "small", "mlp_bias"),
)
_BLOCKS: Mapping[str, tuple[_Row, ...]] = {
    "M": (
        _row("mixer.in_proj.weight", "P H", "input"),
        _row("mixer.in_proj.bias", "P", "small", "mamba_bias"),
        _row("mixer.conv1d.weight", "C 1 W", "small"),
        _row("mixer.conv1d.bias", "C", "small", "conv_bias"),
        _row("mixer.A_log", "m", "a_log"),
        _row("mixer.D", "m", "ones"),
        _row("mixer.dt_bias", "m", "dt_bias"),
        _row("mixer.norm.weight", "D", "ones"),
        _row("mixer.out_proj.weight", "H D", "output"),
        _row("mixer.out_proj.bias", "H", "small", "mamba_bias"),
    ),
    "*": (
        _row("mixer.q_proj.weight", "Q H", "input"),
        _row("mixer.k_proj.weight", "K H", "input"),
        _row("mixer.v_proj.weight", "K H", "input"),
        _row("mixer.o_proj.weight", "H Q", "output"),
    ),
    "-": (
        _row("mixer.up_proj.weight", "I H", "input"),
        _row("mixer.up_proj.bias", "I", "small", "mlp_bias"),
        _row("mixer.down_proj.weight", "H I", "output"),
        _row("mixer.down_proj.bias", "H", "small", "mlp_bias"),
    ),
    "E": (
        _row("mixer.gate.weight", "N H", "input"),
        # fp32 in every published model that has it: its values differ by less than bf16 can tell apart.
        _row("mixer.gate.e_score_correction_bias", "N", "expert_bias", dtype="F32"),
        *_EXPERT,
        _row("mixer.shared_experts.up_proj.weight", "S H", "input"),
        _row("mixer.shared_experts.up_proj.bias", "S", "small", "mlp_bias"),
        _row("mixer.shared_experts.down_proj.weight", "H S", "output"),
        _row("mixer.shared_experts.down_proj.bias", "H", "small", "mlp_bias"),
        _row("mixer.fc1_latent_proj.weight", "X H", "input", "latent"),
        _row("mixer.fc1_latent_proj.bias", "X", "small", "latent", "mlp_bias"),
        _row("mixer.fc2_latent_proj.weight", "H X", "input", "latent"),
        _row("mixer.fc2_latent_proj.bias", "H", "small", "latent", "mlp_bias"),
    ),
}
_MTP_FIRST = (
    _row("eh_proj.weight", "H 2H", "input"),
    _row("enorm.weight", "H", "ones"),
    _row("hnorm.weight", "H", "ones"),
)
_MTP_LAST = (_row("final_layernorm.weight", "H", "ones"),)


def tensor_table(config: Mapping[str, Any], where: str = "config.json") -> Iterator[TensorSpec]:
    """Every tensor of the checkpoint that `config` describes: embedding, layers, norm, head, then the MTP head.

    Raises:
        CheckpointError: The config lacks a size, contradicts itself or describes absurdly many tensors; raised at once,
            not while iterating.
    """
    dims = dimensions(config, where)
    count = _count(dims)
    if count > MOST_TENSORS:
        raise CheckpointError(f"{where}: describes {count:,} tensors; no more than {MOST_TENSORS:,} are read")
    return _walk(dims)


def _count(dims: Dimensions) -> int:
    """How many tensors there are, at most a few too many for the ends of an MTP head, without listing them."""
    layers = dims.pattern.main + dims.pattern.mtp * dims.pattern.mtp_depth
    ends = len(_BEFORE + _AFTER) + dims.pattern.mtp_depth * len(_MTP_FIRST + _MTP_LAST)
    return ends + sum(
        layers.count(letter) * sum(_copies(row, dims) for row in _EVERY_LAYER + rows if row.when <= dims.options)
        for letter, rows in _BLOCKS.items()
        if letter in layers
    )


def _walk(dims: Dimensions) -> Iterator[TensorSpec]:
    yield from _expand("", _BEFORE, dims)
    for index, letter in enumerate(dims.pattern.main):
        yield from _layer(f"backbone.layers.{index}.", letter, dims)
    yield from _expand("", _AFTER, dims)
    steps, width = dims.pattern.mtp_depth, len(dims.pattern.mtp)
    for index in range(steps * width):
        place = index % width
        prefix = f"mtp.layers.{index}."
        if place == 0:
            yield from _expand(prefix, _MTP_FIRST, dims)
        yield from _layer(prefix, dims.pattern.mtp[place], dims)
        if place == width - 1:
            yield from _expand(prefix, _MTP_LAST, dims)


def _layer(prefix: str, letter: str, dims: Dimensions) -> Iterator[TensorSpec]:
    yield from _expand(prefix, _EVERY_LAYER, dims)
    yield from _expand(prefix, _BLOCKS[letter], dims)


def _expand(prefix: str, rows: tuple[_Row, ...], dims: Dimensions) -> Iterator[TensorSpec]:
    for row in rows:
        if row.when <= dims.options:
            shape = tuple(dims.sizes[symbol] for symbol in row.shape.split())
            for expert in range(_copies(row, dims)):
                yield TensorSpec(prefix + row.name.format(e=expert), row.dtype or dims.dtype, shape, row.init)


def _copies(row: _Row, dims: Dimensions) -> int:
    """How many tensors a row stands for: one, or one per expert."""
    return dims.sizes["N"] if "{e}" in row.name else 1
