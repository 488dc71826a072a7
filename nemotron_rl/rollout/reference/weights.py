"""The engine's own copy of the weights, by checkpoint name. Experts of a layer lie in one tensor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from nemotron_rl.checkpoint.tensor_table import tensor_table
from nemotron_rl.errors import WeightMismatch
from nemotron_rl.ops.checksum import tensor_checksum

_EXPERT = re.compile(r"^(?P<block>.*\.experts)\.(?P<expert>\d+)\.(?P<part>up_proj|down_proj)\.weight$")


class WeightTable:
    """Named fp32 weights; every weight of the config has a place, MTP head and expert bias included."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        shapes = {spec.name: tuple(spec.shape) for spec in tensor_table(config)}
        self._stacks = _expert_stacks(shapes)
        self._named: dict[str, Tensor] = {}
        for name, shape in shapes.items():
            expert = _EXPERT.match(name)
            if expert:
                self._named[name] = self._stacks[_stack_name(expert)][int(expert["expert"])]
            else:
                self._named[name] = torch.zeros(shape)
        self.version: int | None = None

    def __getitem__(self, name: str) -> Tensor:
        return self._named[name]

    def experts(self, block: str, part: str) -> Tensor:
        """The experts' matrices of one MoE block, [experts, out, in]; `block` ends with `.experts`."""
        return self._stacks[f"{block}.{part}"]

    def receive(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Copy all weights in; see `CopyingEngine.receive`."""
        self.version = None
        missing = set(self._named)
        for name, tensor in weights:
            if name not in missing:
                problem = "came twice" if name in self._named else "has no place in the engine"
                raise WeightMismatch(f"weight version {version}: {name} {problem}")
            held = self._named[name]
            if held.shape != tensor.shape:
                raise WeightMismatch(
                    f"weight version {version}: {name} has shape {tuple(tensor.shape)}, expected {tuple(held.shape)}"
                )
            held.copy_(tensor)
            missing.discard(name)
        if missing:
            raise WeightMismatch(f"weight version {version}: {len(missing)} weights did not come, {min(missing)} first")
        self.version = version

    def checksums(self) -> dict[str, str]:
        """Checksum of every weight as it lies in memory."""
        return {name: tensor_checksum(tensor) for name, tensor in self._named.items()}


def _expert_stacks(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    counts: dict[str, int] = {}
    of_one: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        expert = _EXPERT.match(name)
        if expert:
            stack = _stack_name(expert)
            counts[stack] = max(counts.get(stack, 0), int(expert["expert"]) + 1)
            of_one[stack] = shape
    return {stack: torch.zeros(count, *of_one[stack]) for stack, count in counts.items()}


def _stack_name(expert: re.Match[str]) -> str:
    return f"{expert['block']}.{expert['part']}"
