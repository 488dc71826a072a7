"""A chosen checkpoint back into a trainer's state."""

from __future__ import annotations

from pathlib import Path

import torch.distributed as dist

from nemotron_rl.config.settings import Settings
from nemotron_rl.megatron import process
from nemotron_rl.megatron.checkpointing.choice import Choice
from nemotron_rl.megatron.checkpointing.state import TrainingState, load, load_random_state

RANDOM = "random"
"""Folder of the random states, one file per rank."""


def restore(choice: Choice, state: TrainingState, settings: Settings) -> Path:
    """Load everything but the metrics, and return the folder of the checkpoint's files; a collective call.

    Ranks share the work of checking that each file is what was written. Random states are those of a fresh start when
    `settings.parallel` is not what the checkpoint was written at: there is no rank to give them to.

    Raises:
        StoreError: naming a file that is missing, truncated or altered.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    folder = process.agreed(lambda: choice.store.files(choice.manifest, rank, ranks))
    load(state, folder, choice.record.step * settings.train.updates_per_step)
    if choice.record.parallel == settings.parallel:
        load_random_state(folder / RANDOM / rank_file(rank))
    return folder


def rank_file(rank: int) -> str:
    """Name of a rank's file of random states."""
    return f"rank_{rank:05d}.safetensors"
