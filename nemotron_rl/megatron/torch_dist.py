"""Megatron's distributed checkpoint of the model's weights, the format of converted starting points."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from megatron.core import dist_checkpointing, parallel_state

FOLDER = "torch_dist"


def is_converted(folder: Path) -> bool:
    """Whether the folder holds converted weights."""
    return (folder / FOLDER).is_dir()


def save(folder: Path, models: Sequence[Any]) -> None:
    """Write the weights of all ranks to `folder / FOLDER`; a collective call."""
    destination = folder / FOLDER
    destination.mkdir(parents=True, exist_ok=True)
    dist_checkpointing.save(_sharded_state(models), str(destination))


def load(folder: Path, models: Sequence[Any]) -> None:
    """Load weights that `save` wrote, at this or another split over ranks; a collective call."""
    loaded = dist_checkpointing.load(_sharded_state(models), str(folder / FOLDER))
    for index, model in enumerate(models):
        model.load_state_dict(loaded[_key(index, models)], strict=True)


def _sharded_state(models: Sequence[Any]) -> dict[str, Any]:
    metadata = {"dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)}
    return {_key(i, models): model.sharded_state_dict(metadata=metadata) for i, model in enumerate(models)}


def _key(index: int, models: Sequence[Any]) -> str:
    return "model" if len(models) == 1 else f"model{index}"
