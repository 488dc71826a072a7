"""Lets `megatron.bridge` be imported without Transformer Engine.

`megatron.bridge.peft.lora_layers` (0.6.2) imports Transformer Engine unconditionally, and the package imports it. It
sees an empty stand-in while it is executed and only then: left behind, the stand-in would tell megatron-core that
Transformer Engine is there.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace

_LORA_LAYERS = "megatron.bridge.peft.lora_layers"


def provide_layers_without_transformer_engine() -> None:
    """Install the finder, unless Transformer Engine itself is there."""
    if importlib.util.find_spec("transformer_engine") is None:
        sys.meta_path.insert(0, _LoraLayersFinder())


class _LoraLayersFinder(importlib.abc.MetaPathFinder):
    """Finds the one module, once, and gives it a loader that shows the stand-in."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _LORA_LAYERS:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _WithStandIn(spec.loader)
        return spec


class _WithStandIn(importlib.abc.Loader):
    """Executes a module while empty `transformer_engine` modules are visible."""

    def __init__(self, inner: importlib.abc.Loader) -> None:
        self._inner = inner

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        importlib.import_module("megatron.core.extensions.transformer_engine")  # core decides before the stand-in shows
        stand_ins = _transformer_engine_stand_ins()
        sys.modules.update(stand_ins)
        try:
            self._inner.exec_module(module)
        finally:
            for name in stand_ins:
                del sys.modules[name]


def _transformer_engine_stand_ins() -> dict[str, ModuleType]:
    root, pytorch = ModuleType("transformer_engine"), ModuleType("transformer_engine.pytorch")
    pytorch.__dict__.update(
        Linear=type("Linear", (), {}),
        LayerNormLinear=type("LayerNormLinear", (), {}),
        ops=SimpleNamespace(Sequential=type("Sequential", (), {})),
    )
    root.__dict__.update(pytorch=pytorch)
    return {root.__name__: root, pytorch.__name__: pytorch}
