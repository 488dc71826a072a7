"""Writes the model as a Hugging Face checkpoint that looks like the one it came from.

Every tensor of the source must be there, in the source's type; config, tokenizer and other files are the source's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from nemotron_rl.checkpoint.any_order import AnyOrderWriter
from nemotron_rl.checkpoint.companions import carry_over
from nemotron_rl.checkpoint.converted import TENSORS_FILE, source_tensors
from nemotron_rl.checkpoint.new_folder import new_folder
from nemotron_rl.checkpoint.tensor_table import TensorSpec
from nemotron_rl.checkpoint.writer import DEFAULT_SHARD_SIZE, plan_shards
from nemotron_rl.errors import CheckpointError
from nemotron_rl.megatron.source_types import TORCH_DTYPES, check_types
from nemotron_rl.report.card import CardFacts, write_card

_SHOWN = 5
_PART = 1 << 24


def export_checkpoint(
    weights: Iterable[tuple[str, Tensor]],
    start: Path,
    out: Path,
    *,
    shard_size: int = DEFAULT_SHARD_SIZE,
    card: CardFacts | None = None,
) -> None:
    """Write `weights` as the checkpoint `out`, which appears complete or not at all; a collective call.

    The first rank writes, each tensor as it arrives: it never holds more than one of them beside its own part.

    Args:
        weights: Name and full tensor of every weight, in any order; the same on every rank.
        start: The checkpoint or converted folder that the model came from.
        out: A folder that does not exist or is empty.
        shard_size: Bytes of tensors per shard.
        card: What the model card says of the run; None keeps the source's own card.

    Raises:
        CheckpointError: A tensor of the source is missing, one too many is there, or a shape is another; on every rank.
        InputError: `out` is taken or cannot be written.
    """
    specs = source_tensors(start)
    check_types(specs, start)
    with _output(start, out, specs, shard_size, card) as writer:
        for spec, tensor in _expected(weights, specs):
            if writer is not None:
                narrow = narrowed(tensor.detach(), TORCH_DTYPES[spec.dtype]).cpu().contiguous()
                writer.write(spec.name, narrow.view(-1).view(torch.uint8).numpy().data)
    dist.barrier()


def narrowed(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor in `dtype`, bit for bit what it was when it came from there; rounded to nearest otherwise.

    torch turns every NaN into one when it converts fp32 to bf16. Where fp32 only holds bf16's bits, they are taken.
    """
    if (tensor.dtype, dtype) == (torch.float32, torch.bfloat16):
        bits = tensor.contiguous().view(torch.int32)
        if not any((part & 0xFFFF).any() for part in bits.view(-1).split(_PART)):
            return (bits >> 16).to(torch.int16).view(torch.bfloat16)
    return tensor.to(dtype)


@contextmanager
def _output(
    start: Path, out: Path, specs: Sequence[TensorSpec], shard_size: int, card: CardFacts | None
) -> Iterator[AnyOrderWriter | None]:
    """Where to write on the first rank, None elsewhere. The folder is complete when the block ends well."""
    if dist.get_rank() != 0:
        yield None
        return
    with ExitStack() as stack:
        folder = stack.enter_context(new_folder(out))
        with AnyOrderWriter(folder, plan_shards(specs, shard_size)) as writer:
            yield writer
        carry_over(start, folder, leave=frozenset({TENSORS_FILE}))
        if card is not None:
            write_card(folder, card)


def _expected(
    weights: Iterable[tuple[str, Tensor]], specs: Sequence[TensorSpec]
) -> Iterator[tuple[TensorSpec, Tensor]]:
    """The weights with what the source says of each; an error at the end when one did not come.

    Raises:
        CheckpointError: as `export_checkpoint` says.
    """
    left: dict[str, TensorSpec] = {spec.name: spec for spec in specs}
    known: Mapping[str, TensorSpec] = dict(left)
    for name, tensor in weights:
        if name not in left:
            raise CheckpointError(
                f"export: the model gives {name} twice" if name in known else f"export: the source has no tensor {name}"
            )
        spec = left.pop(name)
        if tuple(tensor.shape) != spec.shape:
            raise CheckpointError(f"export: {name} has shape {list(tensor.shape)}, the source has {list(spec.shape)}")
        yield spec, tensor
    if left:
        rest = f", and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
        raise CheckpointError(
            f"export: the model does not give {len(left)} tensors of the source: {', '.join([*left][:_SHOWN])}{rest}"
        )
