"""The state of training as megatron's sharded tensors, which load at another split over ranks, and random states."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.dist_checkpointing.strategies.async_utils import AsyncRequest
from megatron.core.optimizer import MegatronOptimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.tensor_parallel.random import get_cuda_rng_tracker
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from nemotron_rl.megatron.optimizer import set_step

_TENSORS = "state"
"""Folder of the sharded tensors."""


@dataclass(frozen=True)
class TrainingState:
    """What a trainer changes when it trains. Everything else follows from settings and the step number."""

    models: Sequence[Any]
    """Model chunks of this rank, without DDP."""
    optimizer: MegatronOptimizer
    schedule: OptimizerParamScheduler


def prepare(state: TrainingState, folder: Path) -> AsyncRequest:
    """Plan the writing of all tensors below `folder`; a collective call. Nothing is copied or written yet."""
    target = folder / _TENSORS
    target.mkdir(exist_ok=True)
    return dist_checkpointing.save(
        _sharded(state, loading=False), str(target), async_sharded_save=True, async_strategy="mcore"
    )


def load(state: TrainingState, folder: Path, updates: int) -> None:
    """Make `state` what `prepare` saw after so many optimizer steps, at any split over ranks; a collective call."""
    loaded = dist_checkpointing.load(_sharded(state, loading=True), str(folder / _TENSORS))
    for index, model in enumerate(state.models):
        model.load_state_dict(loaded[_key(index)], strict=True)
    state.optimizer.load_state_dict(loaded["optimizer"])
    set_step(state.optimizer, state.schedule, updates)


def save_random_state(path: Path) -> None:
    """Write the random states of this rank."""
    numpy_name, keys, position, has_gauss, gauss = np.random.get_state()
    version, internal, gauss_next = random.getstate()
    tensors = {
        "torch": torch.get_rng_state(),
        "numpy": torch.from_numpy(np.asarray(keys).astype(np.int64)),
        "python": torch.tensor(internal, dtype=torch.int64),
        **{f"tracker.{name}": _cpu_bytes(value) for name, value in get_cuda_rng_tracker().get_states().items()},
    }
    if torch.cuda.is_available():
        tensors["cuda"] = torch.cuda.get_rng_state()
    notes = {
        "numpy": [numpy_name, position, has_gauss, float(gauss).hex()],
        "python": [version, None if gauss_next is None else gauss_next.hex()],
    }
    # One entry: safetensors writes several in an order of its own, and equal states should be equal files.
    save_file(tensors, path, metadata={"notes": json.dumps(notes)})


def load_random_state(path: Path) -> None:
    """Restore what `save_random_state` wrote on this rank."""
    tensors = load_file(path)
    with safe_open(path, framework="pt") as file:
        notes = json.loads(file.metadata()["notes"])
    torch.set_rng_state(tensors["torch"])
    name, position, has_gauss, gauss = notes["numpy"]
    keys = tensors["numpy"].numpy().astype(np.uint32)
    np.random.set_state((name, keys, position, has_gauss, float.fromhex(gauss)))
    version, gauss_next = notes["python"]
    internal = tuple(tensors["python"].tolist())
    random.setstate((version, internal, None if gauss_next is None else float.fromhex(gauss_next)))
    tracker = get_cuda_rng_tracker()
    states = tracker.get_states()
    for key in states:
        states[key] = tensors[f"tracker.{key}"]
    tracker.set_states(states)
    if "cuda" in tensors:
        torch.cuda.set_rng_state(tensors["cuda"])


def _sharded(state: TrainingState, loading: bool) -> dict[str, Any]:
    metadata = {
        # Megatron's own default cannot be saved any more (0.19.2), and the other choice reloads at no other TP and PP.
        "distrib_optim_sharding_type": "fully_reshardable",
        "chained_optim_avoid_prefix": True,
        "singleton_local_shards": False,
        "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True),
    }
    models = {_key(i): model.sharded_state_dict(metadata=metadata) for i, model in enumerate(state.models)}
    optimizer = state.optimizer.sharded_state_dict(_by_chunk(models), is_loading=loading, metadata=metadata)
    return {**models, "optimizer": optimizer}


def _by_chunk(models: dict[str, Any]) -> dict[str, Any]:
    """What an optimizer wants: the one model's own dictionary, or one per chunk."""
    if len(models) > 1:
        return models
    (model,) = models.values()
    return dict(model)


def _key(index: int) -> str:
    return f"model{index}"


def _cpu_bytes(state: Tensor) -> Tensor:
    return state.cpu().clone()
