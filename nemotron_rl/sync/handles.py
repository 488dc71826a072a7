"""What an engine is handed of this process's memory: whole storages, and where each tensor lies in them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nemotron_rl.rollout.sglang.message import Place, ViewSpec


def as_buffers(placed: Sequence[tuple[Place, Tensor]]) -> tuple[list[Tensor], tuple[ViewSpec, ...]]:
    """The storages under the views, each once and whole, and where each view lies in them."""
    buffers: list[Tensor] = []
    found: dict[tuple[int, torch.dtype], int] = {}
    specs = []
    for place, view in placed:
        key = (view.untyped_storage().data_ptr(), view.dtype)
        if key not in found:
            found[key] = len(buffers)
            buffers.append(_whole_storage(view))
        specs.append(
            ViewSpec(
                key=place.key,
                start=place.start,
                shape=tuple(view.shape),
                buffer=found[key],
                offset=view.storage_offset(),
                stride=view.stride(),
            )
        )
    return buffers, tuple(specs)


def _whole_storage(view: Tensor) -> Tensor:
    size = view.untyped_storage().nbytes() // view.element_size()
    return torch.as_strided(view, (size,), (1,), 0)
