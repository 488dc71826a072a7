"""The published Nemotron-3 configurations and our own `tiny`, with how certain each value is.

The data is `data/geometries.json`; here is how it is read, checked and scaled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from pydantic import Field

from nemotron_rl.checkpoint.dimensions import dimensions
from nemotron_rl.checkpoint.spelling import read_pattern, write_pattern
from nemotron_rl.config.base import Frozen
from nemotron_rl.config.nearest import nearest, one_of
from nemotron_rl.errors import CheckpointError, SettingsError

SCALABLE = (
    "hidden_size",
    "vocab_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "mamba_num_heads",
    "mamba_head_dim",
    "n_groups",
    "ssm_state_size",
    "conv_kernel",
    "chunk_size",
    "intermediate_size",
    "n_routed_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "moe_latent_size",
    "max_position_embeddings",
)
"""The config keys that `overrides` may change."""


class Geometry(Frozen):
    """One model's configuration as published."""

    model: str
    """The model's name on the Hub."""
    config: dict[str, Any]
    """config.json."""
    generation_config: dict[str, Any] | None = None
    """generation_config.json, where it is known."""
    certainty: dict[str, str]
    """By config key (`*` is the rest): known, with ids of sources, or inferred."""
    counts: dict[str, Any] = Field(default_factory=dict)
    """Published or computed totals, for tests and documents."""
    notes: tuple[str, ...] = ()
    """What else is known of it."""


class Source(Frozen):
    """Where a published value was read."""

    id: str
    """The name that `certainty` uses."""
    where: str
    """Repository and file."""
    what: str
    """What it says."""


class Certainty(Frozen):
    """How sure it is that a preset's values are those of the published model."""

    preset: str
    model: str
    """The model's name on the Hub."""
    marks: dict[str, str]
    """By config key (`*` is the rest): known, with ids of sources, or inferred."""
    notes: tuple[str, ...]
    sources: tuple[Source, ...]
    """Those that the marks name."""

    @property
    def uncertain(self) -> tuple[str, ...]:
        """Keys whose value is not known of this very model."""
        return tuple(key for key, mark in self.marks.items() if not mark.startswith(("known: ", "ours: ")))


@cache
def _data() -> dict[str, Any]:
    text = resources.files("nemotron_rl.checkpoint").joinpath("data/geometries.json").read_text()
    data: dict[str, Any] = json.loads(text)
    return data


def preset_names() -> tuple[str, ...]:
    """The names that `geometry` knows, smallest first."""
    return tuple(_data()["models"])


def sources() -> tuple[Source, ...]:
    """Where the published values were read."""
    return tuple(Source(**source) for source in _data()["sources"])


def certainty(preset: str) -> Certainty:
    """How certain a preset's values are. Raises as `geometry` does."""
    known = geometry(preset)
    named = set(re.findall(r"\bS\d+\b", " ".join(known.certainty.values())))
    cited = tuple(source for source in sources() if source.id in named)
    return Certainty(preset=preset, model=known.model, marks=known.certainty, notes=known.notes, sources=cited)


def preset_of(config: Mapping[str, Any]) -> str | None:
    """The preset whose sizes a config has, whatever its layers; None for a model of other sizes."""
    sizes = {key: config.get(key) for key in SCALABLE}
    models = ((name, geometry(name).config) for name in preset_names())
    return next((name for name, known in models if {key: known.get(key) for key in SCALABLE} == sizes), None)


def geometry(preset: str) -> Geometry:
    """The configuration of a preset.

    Raises:
        SettingsError: There is no such preset; the message has the nearest one.
    """
    if preset not in preset_names():
        close = nearest(preset, preset_names())
        meant = f" Did you mean '{close}'?" if close else ""
        raise SettingsError(f"unknown checkpoint preset '{preset}': expected {one_of(preset_names())}.{meant}")
    return Geometry(**_data()["models"][preset])


def preset_config(preset: str, overrides: Mapping[str, int] | None = None) -> dict[str, Any]:
    """config.json of a synthetic checkpoint: both spellings of the pattern, no `auto_map`, `overrides` applied.

    `auto_map` is left out because it names code files that a synthetic folder does not have.

    Raises:
        SettingsError: Unknown preset, a key that cannot be changed, or sizes that do not fit each other.
    """
    config = geometry(preset).config
    config.pop("auto_map", None)
    where = f"preset {preset}"
    config = write_pattern(config, read_pattern(config, where))
    for key, value in (overrides or {}).items():
        _check_override(key, config, preset)
        config[key] = value
    try:
        dimensions(config, where)
    except CheckpointError as error:
        raise SettingsError(str(error)) from error
    return config


def preset_generation_config(preset: str) -> dict[str, Any]:
    """generation_config.json; where none is published, the token ids of the config."""
    known = geometry(preset)
    if known.generation_config is not None:
        return known.generation_config
    return {key: known.config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}


def _check_override(key: str, config: Mapping[str, Any], preset: str) -> None:
    allowed = [name for name in SCALABLE if name in config]
    if key in allowed:
        return
    close = nearest(key, allowed)
    meant = f" Did you mean '{close}'?" if close else ""
    raise SettingsError(f"`{key}` of preset {preset} cannot be changed.{meant} What can: {', '.join(allowed)}.")
