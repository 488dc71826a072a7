"""What a checkpoint is and what is wrong with it, as numbers; drawing tables is `nemotron_rl.report`'s."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nemotron_rl.checkpoint.layout import CONFIG_FILE, TensorEntry, read_config, read_layout
from nemotron_rl.checkpoint.spelling import read_pattern
from nemotron_rl.checkpoint.tally import Tally, tally
from nemotron_rl.checkpoint.tensor_table import TensorSpec, tensor_table
from nemotron_rl.config.base import Frozen

_SHOWN = 5


class Inspection(Frozen):
    """A checkpoint at a glance. `model_dump_json()` is its JSON form."""

    name: str
    """The folder's name."""
    architecture: str
    """First of the config's `architectures`."""
    pattern: str
    """The trunk's pattern."""
    mtp_pattern: str
    """The MTP head's pattern, empty without one."""
    mtp_depth: int
    """Steps of the MTP head."""
    tally: Tally
    dtypes: dict[str, int]
    """Number of tensors by safetensors type."""
    files: int
    """Number of shards."""
    problems: tuple[str, ...]
    """One sentence each; empty for a sound checkpoint."""


def inspect_checkpoint(src: Path) -> Inspection:
    """Read config, index and headers, count, and compare with what the config promises.

    Raises:
        CheckpointError: No such folder, no weights, or a config that cannot be understood. Everything else is a
            problem in the result.
    """
    config = read_config(src)
    pattern = read_pattern(config, str(src / CONFIG_FILE))
    promised = {spec.name: spec for spec in tensor_table(config, str(src / CONFIG_FILE))}
    layout = read_layout(src)
    tensors = layout.tensors
    return Inspection(
        name=src.absolute().name,
        architecture=_architecture(config),
        pattern=pattern.main,
        mtp_pattern=pattern.mtp,
        mtp_depth=pattern.mtp_depth,
        tally=tally(tensors.values(), pattern),
        dtypes=dict(sorted(Counter(entry.dtype for entry in tensors.values()).items())),
        files=len({entry.file for entry in tensors.values()}),
        problems=(*layout.problems, *_broken_promises(promised, tensors)),
    )


def _architecture(config: Mapping[str, Any]) -> str:
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else "unknown"


def _broken_promises(promised: Mapping[str, TensorSpec], tensors: Mapping[str, TensorEntry]) -> list[str]:
    """Where the tensors differ from those that the config describes."""
    both = [(spec, tensors[name]) for name, spec in promised.items() if name in tensors]
    shapes = [
        f"{spec.name} is {list(entry.shape)}, expected {list(spec.shape)}"
        for spec, entry in both
        if spec.shape != entry.shape
    ]
    dtypes = [
        f"{spec.name} is {entry.dtype}, expected {spec.dtype}" for spec, entry in both if spec.dtype != entry.dtype
    ]
    groups = {
        "tensors that the config promises are missing": [name for name in promised if name not in tensors],
        "tensors are not part of the model that the config describes": [
            name for name in tensors if name not in promised
        ],
        "tensors have another shape than the config says": shapes,
        "tensors have another dtype than the config says": dtypes,
    }
    return [_summary(what, items) for what, items in groups.items() if items]


def _summary(what: str, items: list[str]) -> str:
    rest = f", and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return f"{len(items)} {what}: {', '.join(items[:_SHOWN])}{rest}"
