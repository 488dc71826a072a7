"""A converted folder: Megatron's weights in `torch_dist/`, beside the config and companions of the source.

`tensors.json` names the source's tensors with their types and shapes, so that an export can prove that it has them all.
No torch here: what is inside `torch_dist/` is `nemotron_rl.megatron`'s business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nemotron_rl.checkpoint.dtypes import NUMPY_DTYPES
from nemotron_rl.checkpoint.layout import CONFIG_FILE, LARGEST_JSON, CheckpointFolder, read_json_object
from nemotron_rl.checkpoint.spelling import read_pattern
from nemotron_rl.checkpoint.tensor_table import TensorSpec
from nemotron_rl.errors import CheckpointError

FOLDER = "torch_dist"
TENSORS_FILE = "tensors.json"
_ROW_KEYS = {"name", "dtype", "shape"}


def is_converted(folder: Path) -> bool:
    """Whether the folder holds converted weights."""
    return (folder / FOLDER).is_dir()


def open_converted(folder: Path) -> dict[str, Any]:
    """The config of a converted folder whose config and list of tensors can be read.

    Raises:
        CheckpointError: It is not a converted folder, or one of the files is missing or broken.
    """
    if not folder.is_dir():
        raise CheckpointError(f"there is no folder {folder}")
    if not is_converted(folder):
        raise CheckpointError(
            f"{folder} is not a converted checkpoint: it has no folder {FOLDER}. `nemotron-rl convert` makes one."
        )
    config = read_json_object(folder / CONFIG_FILE)
    read_pattern(config, str(folder / "config.json"))
    source_tensors(folder)
    return config


def source_tensors(start: Path) -> list[TensorSpec]:
    """Tensors of the checkpoint that `start` is, or was converted from.

    Raises:
        CheckpointError: The checkpoint, or the list in a converted folder, is missing or broken.
    """
    if is_converted(start):
        return _read_list(start / TENSORS_FILE)
    return [TensorSpec(t.name, t.dtype, t.shape) for t in CheckpointFolder.open(start).tensors.values()]


def write_source_tensors(hf: Path, converted: Path) -> None:
    """Record the tensors of `hf` in the converted folder."""
    rows = [{key: value for key, value in asdict(t).items() if key in _ROW_KEYS} for t in source_tensors(hf)]
    (converted / TENSORS_FILE).write_text(json.dumps(rows, indent=1))


def _read_list(file: Path) -> list[TensorSpec]:
    try:
        if file.stat().st_size > LARGEST_JSON:
            raise CheckpointError(f"{file} has {file.stat().st_size:,} bytes; no more than {LARGEST_JSON:,} are read")
        rows = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {error.strerror}. A converted folder must have it") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file} is not valid JSON: {error!s:.200}") from error
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) and _is_row(row) for row in rows):
        raise CheckpointError(f"{file} should list the source's tensors: objects with name, dtype and shape")
    specs = [TensorSpec(row["name"], row["dtype"], tuple(row["shape"])) for row in rows]
    if len({spec.name for spec in specs}) != len(specs):
        raise CheckpointError(f"{file} names a tensor twice")
    return specs


def _is_row(row: Mapping[str, Any]) -> bool:
    name, dtype, shape = row.get("name"), row.get("dtype"), row.get("shape")
    return (
        isinstance(name, str)
        and isinstance(dtype, str)
        and dtype in NUMPY_DTYPES
        and isinstance(shape, list)
        and all(type(size) is int and size >= 0 for size in shape)
    )
