"""Python files that a checkpoint brings along (`auto_map`): what they refuse to find in config.json. They are not run.

NVIDIA's own `configuration_nemotron_h.py` derives `layers_block_type` from the pattern string, as a property without a
setter: with the list in config.json too, `from_pretrained(…, trust_remote_code=True)` ends with an AttributeError. All
other readers (transformers' own class, SGLang, megatron-bridge) make the list from the string where it is missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nemotron_rl.checkpoint.ranged.retry import read_bytes
from nemotron_rl.checkpoint.ranged.source import ByteSource
from nemotron_rl.checkpoint.spelling import LIST_KEY, MTP_LIST_KEY

_LARGEST_FILE = 1_000_000
"""Bytes of a Python file that are looked at."""


def without_read_only(config: Mapping[str, Any], source: ByteSource) -> dict[str, Any]:
    """A copy of `config` without the list spellings that the source's own config class could not be given.

    Raises:
        SourceUnavailable: The source kept failing.
        CheckpointError: The source is not what it was when it was opened.
    """
    code = _config_code(config, source)
    return {key: value for key, value in config.items() if key not in _read_only(code)}


def _config_code(config: Mapping[str, Any], source: ByteSource) -> str:
    """Text of the Python file with the config class; empty where the checkpoint brings none."""
    auto_map = config.get("auto_map")
    name = auto_map.get("AutoConfig") if isinstance(auto_map, dict) else None
    file = source.files.get(f"{name.partition('.')[0]}.py") if isinstance(name, str) else None
    if file is None or file.size > _LARGEST_FILE:
        return ""
    return read_bytes(source, file.name, 0, file.size).decode("utf-8", "replace")


def _read_only(code: str) -> set[str]:
    """Which list spellings are properties without a setter."""
    return {
        key
        for key in (LIST_KEY, MTP_LIST_KEY)
        if re.search(rf"@property\s+def {key}\(", code) and not re.search(rf"@{key}\.setter\b", code)
    }
