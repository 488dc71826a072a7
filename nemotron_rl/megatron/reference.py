"""A frozen copy of the starting weights, swapped in to compute the reference model's log-probs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from nemotron_rl.megatron.model import MegatronModel


class ReferenceWeights:
    """Clones of all parameters and buffers as they are now, beside them or in host memory."""

    def __init__(self, model: MegatronModel, on_host: bool = False) -> None:
        self._model = model
        where = torch.device("cpu") if on_host else None
        self._frozen = [tensor.detach().to(where or tensor.device, copy=True) for tensor in self._tensors()]

    def _tensors(self) -> list[Tensor]:
        return [t for chunk in self._model.unwrapped() for t in (*chunk.parameters(), *chunk.buffers())]

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """The model is the reference model inside; afterwards it is bit for bit what it was."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for live, frozen in zip(self._tensors(), self._frozen, strict=True):
            kept = live.to(frozen.device, copy=True)
            live.copy_(frozen)
            frozen.copy_(kept)
