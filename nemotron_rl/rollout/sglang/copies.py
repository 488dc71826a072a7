"""The copies of one push, prepared once: which tensors go where, those that can go together in one batched call."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from nemotron_rl.rollout.sglang.held import Held


@dataclass
class Copies:
    """Pairs of source and target; `run` copies them all."""

    batched: dict[tuple[torch.dtype, torch.dtype], tuple[list[Tensor], list[Tensor]]] = field(default_factory=dict)
    """(targets, sources) by their types: dense tensors, for which a batched copy takes a few kernels."""
    single: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """(target, source) where one of them is strided."""
    exponentials: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """(target, source) where the engine holds -exp of the source."""

    @classmethod
    def of(cls, pairs: Iterable[tuple[Held, Tensor]]) -> Copies:
        """Prepare the copies.

        Raises:
            ValueError: when a source has another number of elements than its target.
        """
        copies = cls()
        for held, source in pairs:
            if held.view.numel() != source.numel():
                raise ValueError(f"a tensor of shape {tuple(source.shape)} came for one of {tuple(held.view.shape)}")
            target = held.view if held.view.shape == source.shape else held.view.view(source.shape)
            if held.transform == "minus_exp":
                copies.exponentials.append((target, source))
            elif not (source.is_contiguous() and target.is_contiguous()):
                copies.single.append((target, source))
            else:
                targets, sources = copies.batched.setdefault((target.dtype, source.dtype), ([], []))
                targets.append(target)
                sources.append(source)
        return copies

    def __len__(self) -> int:
        return sum(len(targets) for targets, _ in self.batched.values()) + len(self.single) + len(self.exponentials)

    def run(self) -> None:
        """Copy all, in the current stream."""
        for targets, sources in self.batched.values():
            torch._foreach_copy_(targets, sources)
        for target, source in self.single:
            target.copy_(source)
        for target, source in self.exponentials:
            target.copy_(-torch.exp(source.float()))
