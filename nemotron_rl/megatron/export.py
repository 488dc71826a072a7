"""Writes the model as a Hugging Face checkpoint that looks like the one it came from.

Every tensor of the source must be there, in the source's type; config, tokenizer and other files are the source's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from nemotron_rl.checkpoint.companions import carry_over
from nemotron_rl.checkpoint.layout import CheckpointFolder
from nemotron_rl.checkpoint.tensor_table import TensorSpec
from nemotron_rl.checkpoint.writer import DEFAULT_SHARD_SIZE, ShardWriter, plan_shards
from nemotron_rl.errors import CheckpointError
from nemotron_rl.megatron.torch_dist import is_converted

TENSORS_FILE = "tensors.json"
"""In a converted folder: names, types and shapes of the source's tensors."""
_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}


def source_tensors(start: Path) -> list[TensorSpec]:
    """Tensors of the checkpoint that `start` is, or was converted from."""
    if is_converted(start):
        rows = json.loads((start / TENSORS_FILE).read_text())
        return [TensorSpec(row["name"], row["dtype"], tuple(row["shape"])) for row in rows]
    return [TensorSpec(t.name, t.dtype, t.shape) for t in CheckpointFolder.open(start).tensors.values()]


def write_source_tensors(hf: Path, converted: Path) -> None:
    """Record the tensors of `hf` in the converted folder."""
    (converted / TENSORS_FILE).write_text(json.dumps([asdict(tensor) for tensor in source_tensors(hf)], indent=1))


def export_checkpoint(weights: Iterable[tuple[str, Tensor]], start: Path, out: Path) -> None:
    """Write `weights` into the empty folder `out`; a collective call, of which the first rank writes.

    The first rank gathers all weights in its memory, in the types of the source.

    Raises:
        CheckpointError: when a tensor of the source is missing, one too many is there, or a shape is another.
    """
    specs = source_tensors(start)
    types = {spec.name: _DTYPES[spec.dtype] for spec in specs}
    writes = dist.get_rank() == 0
    gathered: dict[str, Tensor] = {}
    for name, tensor in weights:
        if writes:
            gathered[name] = tensor.to("cpu", types.get(name, tensor.dtype), copy=True)
    if writes:
        _check(gathered, specs)
        with ShardWriter(out, plan_shards(specs, DEFAULT_SHARD_SIZE)) as writer:
            for spec in specs:
                writer.write(spec.name, [gathered[spec.name].contiguous().view(-1).view(torch.uint8).numpy().data])
        carry_over(start, out, leave=frozenset({TENSORS_FILE}))
    dist.barrier()


def _check(gathered: dict[str, Tensor], specs: Iterable[TensorSpec]) -> None:
    shapes = {spec.name: spec.shape for spec in specs}
    for names, what in ((shapes.keys() - gathered.keys(), "missing"), (gathered.keys() - shapes.keys(), "unexpected")):
        if names:
            raise CheckpointError(f"export: {len(names)} tensors are {what}; the first is {min(names)}")
    for name, shape in shapes.items():
        if tuple(gathered[name].shape) != shape:
            raise CheckpointError(f"export: {name} has shape {tuple(gathered[name].shape)}, the source has {shape}")
