"""Megatron's distributed checkpoint of the model's weights, the format of converted starting points."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing.mapping import ShardedTensor, ShardedTensorFactory
from torch.distributed.checkpoint.api import CheckpointException

from nemotron_rl.checkpoint.converted import FOLDER
from nemotron_rl.errors import InputError
from nemotron_rl.megatron.causes import root_cause
from nemotron_rl.megatron.torch_dist_files import check_files, check_tensors


def save(folder: Path, models: Sequence[Any]) -> None:
    """Write the weights of all ranks to `folder / FOLDER`; a collective call.

    Raises:
        InputError: They cannot be written there; says why, and how much room there is.
    """
    destination = folder / FOLDER
    sharded = _sharded_state(models)
    try:
        destination.mkdir(parents=True, exist_ok=True)
        dist_checkpointing.save(sharded, str(destination))
    except (OSError, CheckpointException) as error:  # the latter is torch's, and has what each rank met
        cause = root_cause(error)
        why = (cause.strerror if isinstance(cause, OSError) else None) or cause
        free = shutil.disk_usage(folder).free
        raise InputError(f"cannot write {destination}: {why}; {free:,} bytes are free there") from error


def load(folder: Path, models: Sequence[Any]) -> None:
    """Load weights that `save` wrote, at this or another split over ranks; a collective call.

    Values are read into the parameters themselves; a parameter of another type than the file's takes converted values.

    Raises:
        CheckpointError: A file is missing or damaged, or holds another model's weights; on every rank.
    """
    source = folder / FOLDER
    sharded = _sharded_state(models)
    check_tensors(check_files(source), _shapes_of_all_ranks(sharded), source)
    loaded = dist_checkpointing.load(sharded, str(source))
    for index, model in enumerate(models):
        model.load_state_dict(loaded[_key(index, models)], strict=True)


def _sharded_state(models: Sequence[Any]) -> dict[str, Any]:
    metadata = {"dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)}
    return {_key(i, models): model.sharded_state_dict(metadata=metadata) for i, model in enumerate(models)}


def _shapes_of_all_ranks(sharded: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Global shape of every tensor of every pipeline stage, by the key that it has in the checkpoint."""
    shapes = {tensor.key: tuple(tensor.global_shape) for tensor in _sharded_tensors(sharded)}
    gathered: list[dict[str, tuple[int, ...]]] = [{}] * dist.get_world_size()
    dist.all_gather_object(gathered, shapes)
    return {key: shape for part in gathered for key, shape in part.items()}


def _sharded_tensors(state: object) -> Iterator[ShardedTensor]:
    """All sharded tensors of a nested state, those that a factory makes of one parameter too."""
    if isinstance(state, ShardedTensor):
        yield state
    elif isinstance(state, ShardedTensorFactory):
        with torch.no_grad():
            yield from _sharded_tensors(state.build())
    elif isinstance(state, (Mapping, list, tuple)):
        for value in state.values() if isinstance(state, Mapping) else state:
            yield from _sharded_tensors(value)


def _key(index: int, models: Sequence[Any]) -> str:
    return "model" if len(models) == 1 else f"model{index}"
