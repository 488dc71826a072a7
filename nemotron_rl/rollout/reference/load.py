"""Weights of a checkpoint folder as torch tensors."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from safetensors import safe_open
from torch import Tensor

from nemotron_rl.checkpoint.layout import CheckpointFolder


def folder_weights(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) of every weight, in the dtype of the file, shard by shard.

    Raises:
        CheckpointError: when the folder is not a sound checkpoint.
    """
    tensors = CheckpointFolder.open(folder).tensors.values()
    for shard, entries in groupby(tensors, key=lambda entry: entry.file):
        with safe_open(folder / shard, framework="pt") as file:
            for entry in entries:
                yield entry.name, file.get_tensor(entry.name)
