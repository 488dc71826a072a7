"""Tensors, parameters and bytes per block type: the numbers that synth, inspect and slice report."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol

from nemotron_rl.checkpoint.spelling import Pattern
from nemotron_rl.config.base import Frozen

LAYERS_PREFIX = "backbone.layers."
LAYER_NAME = re.compile(r"backbone\.layers\.(0|[1-9][0-9]{0,8})\.")
MTP_PREFIX = "mtp."
OTHER = "other"
_TOP = {"backbone.embeddings.": "embedding", "backbone.norm_f.": "final norm", "lm_head.": "head", MTP_PREFIX: "mtp"}


class Sized(Protocol):
    """A tensor's name and size."""

    @property
    def name(self) -> str:
        """Name in the checkpoint."""

    @property
    def params(self) -> int:
        """Elements."""

    @property
    def nbytes(self) -> int:
        """Bytes of data."""


class Count(Frozen):
    """How much there is of something."""

    tensors: int = 0
    params: int = 0
    """Elements."""
    nbytes: int = 0
    """Bytes of data, headers not counted."""

    def __add__(self, other: Count) -> Count:
        """The sum."""
        return Count(
            tensors=self.tensors + other.tensors, params=self.params + other.params, nbytes=self.nbytes + other.nbytes
        )


class Tally(Frozen):
    """Counts of a checkpoint."""

    by_block: dict[str, Count]
    """`embedding`, `M`, `E`, `*`, `-`, `final norm`, `head`, `mtp`, `other`; those that occur."""
    layers: dict[str, int]
    """Number of trunk layers by block letter."""

    @property
    def total(self) -> Count:
        """Everything together."""
        return sum(self.by_block.values(), Count())

    @property
    def base(self) -> Count:
        """Everything but the MTP head."""
        return sum((count for block, count in self.by_block.items() if block != "mtp"), Count())


def tally(tensors: Iterable[Sized], pattern: Pattern) -> Tally:
    """Count `tensors` by the block that their names say they belong to."""
    sums: dict[str, list[int]] = {}
    for tensor in tensors:
        row = sums.setdefault(block_of(tensor.name, pattern), [0, 0, 0])
        row[0] += 1
        row[1] += tensor.params
        row[2] += tensor.nbytes
    order = ["embedding", *dict.fromkeys(pattern.main), "final norm", "head", "mtp", OTHER]
    counts = {b: Count(tensors=sums[b][0], params=sums[b][1], nbytes=sums[b][2]) for b in order if b in sums}
    return Tally(by_block=counts, layers={letter: pattern.main.count(letter) for letter in dict.fromkeys(pattern.main)})


def block_of(name: str, pattern: Pattern) -> str:
    """The block type that a tensor's name puts it in, `other` when it is not one of NVIDIA's names."""
    layer = layer_of(name)
    if layer is not None:
        return pattern.main[layer] if layer < len(pattern.main) else OTHER
    return next((block for prefix, block in _TOP.items() if name.startswith(prefix)), OTHER)


def layer_of(name: str) -> int | None:
    """The trunk layer in a tensor's name, None for tensors outside the trunk's layers."""
    found = LAYER_NAME.match(name)
    return int(found.group(1)) if found else None
