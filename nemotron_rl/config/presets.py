"""The presets that come with the package: `presets/NAME.yaml`, each a partial settings file."""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import Any

from nemotron_rl.config.nearest import nearest, one_of
from nemotron_rl.config.parse import read_yaml
from nemotron_rl.errors import SettingsError


def preset_names() -> list[str]:
    """Names of all presets, sorted."""
    folder = files("nemotron_rl.config") / "presets"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def read_preset(name: str) -> dict[str, Any]:
    """The preset's mapping. Raises SettingsError that names the presets when there is no such one."""
    if name not in preset_names():
        raise SettingsError(unknown_preset(name))
    with as_file(files("nemotron_rl.config") / "presets" / f"{name}.yaml") as path:
        return read_yaml(path)


def unknown_preset(name: str) -> str:
    """What to say about a preset that does not exist."""
    guess = nearest(name, preset_names())
    return f"unknown preset; use {one_of(preset_names())}" + (f" (did you mean {guess}?)" if guess else "")
