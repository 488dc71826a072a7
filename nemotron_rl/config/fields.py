"""Every setting by its dotted path: the flat view in which presets, files, environment and command line are merged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from nemotron_rl.config.settings import Settings


@cache
def leaves() -> Mapping[str, FieldInfo]:
    """All settings that hold a value, by dotted path."""
    return dict(_walk(Settings, ""))


@cache
def sections() -> frozenset[str]:
    """Dotted paths of all sections: `train`, `train.optimizer`, …"""
    return frozenset(path.rsplit(".", depth)[0] for path in leaves() for depth in range(1, path.count(".") + 1))


def _walk(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _walk(field.annotation, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", field


def accepts(path: str, kind: type) -> bool:
    """Whether the setting's type names `kind`, alone or in a union: `accepts("slice.layers", tuple)`."""
    return kind in _kinds(leaves()[path].annotation)


def _kinds(annotation: Any) -> Iterator[Any]:
    yield getattr(annotation, "__origin__", annotation)
    if getattr(annotation, "__origin__", None) is not tuple:
        for part in get_args(annotation):
            yield from _kinds(part)


def nested(flat: Mapping[str, object]) -> dict[str, Any]:
    """`{"a.b": 1}` as `{"a": {"b": 1}}`."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, name = path.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = value
    return tree


def flat(settings: BaseModel, prefix: str = "") -> dict[str, object]:
    """The settings' values by dotted path, in the order of their definition."""
    values: dict[str, object] = {}
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            values |= flat(value, f"{prefix}{name}.")
        else:
            values[f"{prefix}{name}"] = value
    return values
