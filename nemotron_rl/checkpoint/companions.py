"""The files of a checkpoint that are neither weights nor config: tokenizer, templates, generation config, licences."""

from __future__ import annotations

import shutil
from pathlib import Path, PurePath

from nemotron_rl.checkpoint.layout import CONFIG_FILE, INDEX_FILE
from nemotron_rl.errors import InputError

_WEIGHT_SUFFIXES = {".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx"}


def is_companion(name: str) -> bool:
    """Whether a file of a checkpoint, by its name, is neither weights nor the config, nor hidden."""
    return PurePath(name).suffix not in _WEIGHT_SUFFIXES and name not in (CONFIG_FILE, INDEX_FILE) and name[0] != "."


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
