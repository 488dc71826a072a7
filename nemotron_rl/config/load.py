"""Settings from a preset, a file, the environment and the command line, in that order from weakest to strongest.

All errors of one load are reported together, each with the key, the value, where it came from and what is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from nemotron_rl.config.fields import nested
from nemotron_rl.config.layers import (
    Layer,
    Override,
    default_layer,
    environment_layer,
    mapping_layer,
    override_layer,
)
from nemotron_rl.config.parse import read_yaml
from nemotron_rl.config.presets import preset_names, read_preset, unknown_preset
from nemotron_rl.config.problem import Problem, raise_problems
from nemotron_rl.config.rules import broken_rules
from nemotron_rl.config.settings import Settings
from nemotron_rl.config.typed import type_problems

DEFAULT_PRESET = "tiny"


@dataclass(frozen=True)
class Loaded:
    """Settings, and where each of them came from."""

    settings: Settings
    origins: Mapping[str, str]
    """`default`, `preset tiny`, `file run.yaml`, `environment NEMOTRON_RL_…`, `--set`, by dotted path."""


def load_settings(
    preset: str | None = None,
    *,
    config_file: Path | None = None,
    overrides: Sequence[str | Override] | Mapping[str, object] = (),
    environ: Mapping[str, str],
) -> Settings:
    """The settings alone; see `load`."""
    return load(preset, config_file=config_file, overrides=overrides, environ=environ).settings


def load(
    preset: str | None = None,
    *,
    config_file: Path | None = None,
    overrides: Sequence[str | Override] | Mapping[str, object] = (),
    environ: Mapping[str, str],
    trains: bool = True,
) -> Loaded:
    """Merge all sources, check types and rules, and name the run.

    Args:
        preset: Preset to start from; None takes `preset` from the command line's overrides, the environment or the
            file, in this order, and else "tiny".
        config_file: YAML with the same sections as a preset.
        overrides: `KEY=VALUE` texts whose value is YAML, `Override`s, or values by dotted key.
        environ: The process's environment; variables that start with `NEMOTRON_RL_` are settings.
        trains: Whether the settings must fit a training run; else only ranks, nodes and the model must fit together.

    Raises:
        SettingsError: A value is unknown, ill-typed, out of range or impossible together with another. Lists all.
    """
    if isinstance(overrides, Mapping):
        overrides = [Override(key, value) for key, value in overrides.items()]
    given = [
        mapping_layer(read_yaml(config_file), f"file {config_file}") if config_file else Layer(),
        environment_layer(environ),
        override_layer([*overrides, *([Override("preset", preset, "--preset")] if preset is not None else [])]),
    ]
    problems: list[Problem] = [problem for layer in given for problem in layer.problems]
    base, preset_problems = _preset_layer(given)
    problems += preset_problems
    merged = _merge([default_layer(), base, *given])
    return _settle(merged, problems, trains)


def _preset_layer(given: Sequence[Layer]) -> tuple[Layer, list[Problem]]:
    """The layer of the strongest mention of a preset, or the problem that it does not exist."""
    name, origin = _merge([Layer({"preset": (DEFAULT_PRESET, "default")}), *given])["preset"]
    if name not in preset_names():
        return Layer(), [Problem("preset", unknown_preset(str(name)), name, origin)]
    layer = mapping_layer(read_preset(str(name)), f"preset {name}")
    return layer, layer.problems


def _merge(layers: Sequence[Layer]) -> dict[str, tuple[object, str]]:
    merged: dict[str, tuple[object, str]] = {}
    for layer in layers:
        merged |= layer.values
    return merged


def _settle(merged: dict[str, tuple[object, str]], problems: list[Problem], trains: bool) -> Loaded:
    """Types first; then the rules, with wrong values replaced by defaults so that one load tells everything."""
    merged = {"run_id": (_run_id(merged), "preset and time"), **merged}
    wrong = type_problems(merged)
    problems = problems + wrong
    defaults = {**_merge([default_layer()]), "run_id": ("unnamed", "default")}
    bad = {problem.key for problem in problems}
    usable = {path: defaults[path] if path in bad else entry for path, entry in merged.items()}
    settings = Settings.model_validate(nested({path: value for path, (value, _) in usable.items()}))
    for broken in broken_rules(settings, trains=trains):
        if not bad.intersection((broken.key, *broken.involved)):
            value, origin = merged[broken.key]
            problems.append(Problem(broken.key, broken.message, value, origin))
    raise_problems(problems)
    return Loaded(settings, {path: origin for path, (_, origin) in merged.items()})


def _run_id(merged: Mapping[str, tuple[object, str]]) -> str:
    return f"{merged['preset'][0]}-{datetime.now():%Y%m%d-%H%M%S}"
