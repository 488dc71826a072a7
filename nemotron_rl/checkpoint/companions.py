"""The files of a checkpoint that are neither weights nor config: tokenizer, templates, generation config, licences."""

from __future__ import annotations

import os
import shutil
from pathlib import Path, PurePath

from nemotron_rl.checkpoint.layout import CONFIG_FILE
from nemotron_rl.errors import InputError

_WEIGHT_SUFFIXES = {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx"}
_LONGEST_NAME = 255
"""Bytes; of every file system that Linux has."""


def is_companion(name: str) -> bool:
    """Whether a file of a checkpoint, by its name, is neither weights, nor their index, nor the config, nor hidden.

    A name that this system cannot write, which a remote listing may have, is none either.
    """
    lower = name.lower()  # a file system may take MODEL.SAFETENSORS for our own
    of_weights = PurePath(lower).suffix in _WEIGHT_SUFFIXES or lower.endswith(".index.json")
    return not of_weights and lower != CONFIG_FILE and not name.startswith(".") and _can_be_written(name)


def _can_be_written(name: str) -> bool:
    try:
        return 0 < len(os.fsencode(name)) <= _LONGEST_NAME and not set(name) & set("/\\\0")
    except UnicodeEncodeError:
        return False


def carry_over(src: Path, dst: Path, leave: frozenset[str] = frozenset()) -> None:
    """Copy the config and every companion of `src` that is not named in `leave`.

    Raises:
        InputError: a file cannot be copied.
    """
    for file in sorted(src.iterdir()):
        wanted = file.name == CONFIG_FILE or is_companion(file.name)
        if not wanted or file.name in leave or not file.is_file():
            continue
        try:
            shutil.copyfile(file, dst / file.name)
        except OSError as error:
            raise InputError(f"cannot copy {file.name} into {dst.parent}: {error.strerror}") from error
