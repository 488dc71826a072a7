"""Finds out what is wrong with a distributed checkpoint before megatron reads it, and says so with the file's name.

Its `.metadata` says where every piece of every tensor lies, so missing, truncated and mixed-up files show without
reading a weight. megatron and torch would end in a traceback, or read other bytes.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from nemotron_rl.checkpoint.layout import read_json_object
from nemotron_rl.errors import CheckpointError

METADATA_FILE = ".metadata"
FORMAT_FILE = "metadata.json"
_ADVICE = "Convert the checkpoint again."


def check_files(folder: Path) -> Metadata:
    """The checkpoint's metadata, once all files that it names are there and have the right sizes.

    Raises:
        CheckpointError: A file is missing, damaged, or belongs to another checkpoint.
    """
    for name in (FORMAT_FILE, METADATA_FILE):
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder / name} is missing: the checkpoint was never completed. {_ADVICE}")
    _check_format(folder / FORMAT_FILE)
    metadata = _read_metadata(folder / METADATA_FILE)
    for name, size in sorted(_sizes(metadata, folder).items()):
        _check_size(folder / name, size)
    return metadata


def check_tensors(metadata: Metadata, needed: Mapping[str, tuple[int, ...]], folder: Path) -> None:
    """The checkpoint's tensors are those that the model of all ranks needs, by name and global shape.

    Raises:
        CheckpointError: They are not; names the first tensors that differ.
    """
    stored = {
        key: tuple(entry.size)
        for key, entry in metadata.state_dict_metadata.items()
        if isinstance(entry, TensorStorageMetadata)
    }
    shapes = [
        f"{key} has the shape {list(stored[key])}, the model needs {list(needed[key])}"
        for key in sorted(needed.keys() & stored.keys())
        if needed[key] != stored[key]
    ]
    groups = {
        "missing": sorted(needed.keys() - stored.keys()),
        "of another shape": shapes,
        "of no use to it": sorted(stored.keys() - needed.keys()),
    }
    if any(groups.values()):
        found = "; ".join(f"{len(keys)} tensors are {what}, first {keys[0]}" for what, keys in groups.items() if keys)
        raise CheckpointError(
            f"{folder / METADATA_FILE} describes another model than {folder.parent / 'config.json'}: {found}. "
            "The files do not belong together."
        )


def _check_format(file: Path) -> None:
    said = read_json_object(file)
    if said.get("sharded_backend") != "torch_dist":
        raise CheckpointError(f"{file} should say that `sharded_backend` is 'torch_dist': {said!r:.200}. {_ADVICE}")


def _read_metadata(file: Path) -> Metadata:
    try:
        with file.open("rb") as stream:
            metadata = pickle.load(stream)
    except Exception as error:  # what unpickling of damaged bytes raises is anybody's guess
        raise CheckpointError(f"{file} is damaged: {type(error).__name__}: {error!s:.200}. {_ADVICE}") from error
    if not isinstance(metadata, Metadata) or not isinstance(metadata.storage_data, dict):
        raise CheckpointError(f"{file} is not the metadata of a distributed checkpoint. {_ADVICE}")
    return metadata


def _sizes(metadata: Metadata, folder: Path) -> dict[str, int]:
    """Bytes that each file must have."""
    ends: dict[str, int] = defaultdict(int)
    for info in metadata.storage_data.values():
        name, end = getattr(info, "relative_path", None), getattr(info, "offset", 0) + getattr(info, "length", 0)
        if not isinstance(name, str) or Path(name).name != name:
            raise CheckpointError(f"{folder / METADATA_FILE} names a file outside of its folder: {name!r:.200}")
        ends[name] = max(ends[name], end)
    return ends


def _check_size(file: Path, size: int) -> None:
    if not file.is_file():
        raise CheckpointError(f"{file} is missing; {METADATA_FILE} names it. {_ADVICE}")
    found = file.stat().st_size
    if found < size:
        raise CheckpointError(f"{file} is truncated: it has {found:,} of {size:,} bytes. {_ADVICE}")
    if found > size:
        raise CheckpointError(
            f"{file} has {found:,} bytes, but {METADATA_FILE} says {size:,}: they are of two checkpoints. {_ADVICE}"
        )
