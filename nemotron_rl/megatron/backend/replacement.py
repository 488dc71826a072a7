"""A named attribute of someone else's module, what stands in its place, and why. Not a general patching tool."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Replacement:
    """One attribute to replace."""

    owner: str
    """Dotted path of the module, or of a class in it as `module:Class`."""
    name: str
    """The attribute; it must exist, so that an upstream rename is noticed."""
    value: Any
    """What it becomes."""
    reason: str
    """Why upstream's own does not do."""

    def resolve(self) -> object:
        """The owning module or class."""
        module, _, cls = self.owner.partition(":")
        owner: object = importlib.import_module(module)
        return getattr(owner, cls) if cls else owner


def apply(replacements: Iterable[Replacement]) -> None:
    """Put each replacement in place.

    Raises:
        AttributeError: when upstream no longer has the attribute: the replacement must be looked at again.
    """
    for one in replacements:
        owner = one.resolve()
        if not hasattr(owner, one.name):
            raise AttributeError(f"{one.owner} has no {one.name}; it was replaced because: {one.reason}")
        setattr(owner, one.name, one.value)
