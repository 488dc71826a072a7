"""Where settings come from: each source of values as one flat layer of (dotted path, value, origin)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nemotron_rl.config.fields import flat, leaves, sections
from nemotron_rl.config.nearest import nearest, nearest_key
from nemotron_rl.config.parse import parse_value
from nemotron_rl.config.problem import Problem
from nemotron_rl.config.settings import Settings

ENV_PREFIX = "NEMOTRON_RL_"
NOT_SETTINGS = ("NEMOTRON_RL_JOB", "NEMOTRON_RL_TEST_")
"""Variables that begin so are tags by which a process's descendants are found; jobs inherit them with the rest."""


@dataclass(frozen=True)
class Override:
    """A setting from the command line."""

    key: str
    """Dotted path."""
    value: object
    """Already parsed."""
    origin: str = "command line"
    """The flag that gave it."""


@dataclass
class Layer:
    """Values from one source, and what was wrong with the rest of it."""

    values: dict[str, tuple[object, str]] = field(default_factory=dict)
    """(value, origin) by dotted path; every path is a setting."""
    problems: list[Problem] = field(default_factory=list)
    """Keys that are no settings."""

    def put(self, path: str, value: object, origin: str) -> None:
        """Add one value, or the problem that `path` is not a setting."""
        if path in leaves():
            self.values[path] = (value, origin)
        else:
            self.problems.append(Problem(path, _unknown(path), value, origin))


def default_layer() -> Layer:
    """What the settings classes say themselves."""
    values = flat(Settings(run_id="default"))
    del values["run_id"]
    return Layer({path: (value, "default") for path, value in values.items()})


def mapping_layer(content: Mapping[Any, Any], origin: str) -> Layer:
    """A preset or a settings file."""
    layer = Layer()
    _flatten(layer, content, "", origin)
    return layer


def _flatten(layer: Layer, content: Mapping[Any, Any], prefix: str, origin: str) -> None:
    for name, value in content.items():
        path = f"{prefix}{name}"
        if path in sections() and isinstance(value, Mapping):
            _flatten(layer, value, f"{path}.", origin)
        elif not (path in sections() and value is None):  # `train:` with nothing below it says nothing
            layer.put(path, value, origin)


def environment_layer(environ: Mapping[str, str]) -> Layer:
    """`NEMOTRON_RL_TRAIN__OPTIMIZER__LR=1e-6` sets `train.optimizer.lr`."""
    layer = Layer()
    for name in sorted(environ):
        if name.startswith(ENV_PREFIX) and not name.startswith(NOT_SETTINGS):
            path = name.removeprefix(ENV_PREFIX).lower().replace("__", ".")
            layer.put(path, parse_value(path, environ[name]), f"environment {name}")
    return layer


def override_layer(overrides: Iterable[str | Override]) -> Layer:
    """`KEY=VALUE` texts of `--set`, and values of other flags; a later one wins."""
    layer = Layer()
    for override in overrides:
        if isinstance(override, Override):
            layer.put(override.key, override.value, override.origin)
            continue
        path, equals, text = override.partition("=")
        path = path.strip()
        if not equals:
            message = "should be KEY=VALUE, such as --set train.optimizer.lr=1e-6"
            layer.problems.append(Problem(path, message, origin="--set"))
            continue
        layer.put(path, parse_value(path, text), "--set")
    return layer


def _unknown(path: str) -> str:
    if path in sections():
        names = dict.fromkeys(
            key.removeprefix(f"{path}.").partition(".")[0] for key in leaves() if key.startswith(f"{path}.")
        )
        return f"is a section, not a value; its keys are {', '.join(names)}"
    parent, _, _ = path.rpartition(".")
    if parent in leaves():
        return f"unknown key: {parent} holds a value and has no keys of its own"
    guess = nearest_key(path, leaves()) if parent else nearest(path, {*sections(), *leaves()})
    return "unknown key" + (f"; did you mean {guess}?" if guess else f"; sections are {', '.join(_top())}")


def _top() -> list[str]:
    return sorted(section for section in sections() if "." not in section)
