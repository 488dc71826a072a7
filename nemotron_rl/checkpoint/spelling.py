"""The block pattern of a Nemotron-H config, in whatever spelling it comes, and both spellings written out.

Published configs say it as a string (`hybrid_override_pattern`), as a list (`layers_block_type`) or both; SGLang
prefers the list and megatron-bridge reads the string, so what we write always has both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nemotron_rl.checkpoint.strict_json import shown
from nemotron_rl.errors import CheckpointError

BLOCK_NAMES = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}
"""The list spelling by the letter of the string spelling."""
BLOCK_LETTERS = {name: letter for letter, name in BLOCK_NAMES.items()}

STRING_KEY, LIST_KEY, COUNT_KEY = "hybrid_override_pattern", "layers_block_type", "num_hidden_layers"
ALIAS_KEY = "layer_types"
"""Transformers' other name of the list. Nobody publishes it alone; where it is, it must not stay behind."""
MTP_STRING_KEY, MTP_LIST_KEY, MTP_DEPTH_KEY = (
    "mtp_hybrid_override_pattern",
    "mtp_layers_block_type",
    "num_nextn_predict_layers",
)

LARGEST_DEPTH, MOST_LAYERS = 64, 10_000
"""MTP steps, and layers of a stack; a broken config must not make us count to a billion."""


@dataclass(frozen=True)
class Pattern:
    """One letter per layer: M mamba, E mixture of experts, * attention, - dense feed-forward."""

    main: str
    """The trunk's layers."""
    mtp: str = ""
    """The layers of one step of the multi-token-prediction head; empty without a head."""
    mtp_depth: int = 0
    """How many steps the head has, each with its own weights in the file."""

    def __str__(self) -> str:
        """The trunk, then the head once per step, as Megatron writes them: `ME*E/*E`."""
        return "/".join([self.main, *[self.mtp] * self.mtp_depth])


def read_pattern(config: Mapping[str, Any], where: str = "config.json") -> Pattern:
    """The pattern that every spelling in `config` agrees on; `where` names the config in errors.

    Raises:
        CheckpointError: No spelling, two that disagree, an unknown block, or no attention layer.
    """
    main = _read_stack(config, STRING_KEY, LIST_KEY, where)
    if main is None:
        raise CheckpointError(
            f"{where} says nothing about its layers: expected `{STRING_KEY}` (such as 'MEM*EM-E') or `{LIST_KEY}` (a "
            "list of block names). Is it a Nemotron-H checkpoint?"
        )
    _check_count(config, main, where)
    require_attention(main, where)
    depth = _read_depth(config, where)
    if depth == 0:
        return Pattern(main)
    mtp = _read_stack(config, MTP_STRING_KEY, MTP_LIST_KEY, where)
    if not mtp:
        raise CheckpointError(
            f"{where}: `{MTP_DEPTH_KEY}` is {depth}, but neither `{MTP_STRING_KEY}` nor `{MTP_LIST_KEY}` says which "
            "layers the MTP head has. Add one of them (published models have '*E')."
        )
    return Pattern(main, mtp, depth)


def write_pattern(config: Mapping[str, Any], pattern: Pattern) -> dict[str, Any]:
    """A copy of `config` with `pattern` in both spellings; every other key is as it was, and in its place."""
    written = dict(config)
    written |= {STRING_KEY: pattern.main, LIST_KEY: block_names(pattern.main), COUNT_KEY: len(pattern.main)}
    if ALIAS_KEY in written:
        written[ALIAS_KEY] = block_names(pattern.main)
    if pattern.mtp_depth:
        written |= {
            MTP_STRING_KEY: pattern.mtp,
            MTP_LIST_KEY: block_names(pattern.mtp),
            MTP_DEPTH_KEY: pattern.mtp_depth,
        }
        return written
    for key in (MTP_STRING_KEY, MTP_LIST_KEY):
        written.pop(key, None)
    if MTP_DEPTH_KEY in written:
        written[MTP_DEPTH_KEY] = 0
    return written


def block_names(letters: str) -> list[str]:
    """The list spelling of a pattern string."""
    return [BLOCK_NAMES[letter] for letter in letters]


def require_attention(letters: str, where: str) -> None:
    """Refuse a trunk that none of Megatron, SGLang and transformers can run.

    Raises:
        CheckpointError: There is no attention layer.
    """
    if "*" not in letters:
        present = ", ".join(f"{letter} ({BLOCK_NAMES[letter]})" for letter in dict.fromkeys(letters)) or "none"
        raise CheckpointError(
            f"{where}: the pattern {shown(letters)} has no attention layer (*). Block types present: {present}. "
            "Megatron, SGLang and transformers take the KV cache's geometry from the attention layers, so at least one "
            "is needed."
        )


def _read_stack(config: Mapping[str, Any], string_key: str, list_key: str, where: str) -> str | None:
    """The letters of one stack of layers, None when neither key says anything."""
    for key in (string_key, list_key):
        value = config.get(key)
        if isinstance(value, (str, list)) and len(value) > MOST_LAYERS:
            raise CheckpointError(f"{where}: `{key}` has {len(value):,} layers; no more than {MOST_LAYERS:,} are read")
    from_string = _letters_of_string(config.get(string_key), string_key, where)
    from_list = _letters_of_list(config.get(list_key), list_key, where)
    if from_string is not None and from_list is not None and from_string != from_list:
        raise CheckpointError(
            f"{where}: two spellings of the pattern disagree: `{string_key}` is {shown(from_string)} and `{list_key}` "
            f"is {shown(from_list)}. Correct the wrong one, or delete it."
        )
    return from_string if from_string is not None else from_list


def _letters_of_string(value: object, key: str, where: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise CheckpointError(f"{where}: `{key}` must be a string of block letters, not {shown(value)}")
    for place, letter in enumerate(value):
        if letter not in BLOCK_NAMES:
            raise CheckpointError(
                f"{where}: `{key}` has the unknown letter {shown(letter)} at layer {place}; {_allowed()}"
            )
    return value


def _letters_of_list(value: object, key: str, where: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise CheckpointError(f"{where}: `{key}` must be a list of block names, not {shown(value)}")
    for place, name in enumerate(value):
        if not isinstance(name, str) or name not in BLOCK_LETTERS:
            raise CheckpointError(
                f"{where}: `{key}` has the unknown block {shown(name)} at layer {place}; {_allowed()}"
            )
    return "".join(BLOCK_LETTERS[name] for name in value)


def _allowed() -> str:
    return "allowed: " + ", ".join(f"{letter} ({name})" for letter, name in BLOCK_NAMES.items())


def _check_count(config: Mapping[str, Any], main: str, where: str) -> None:
    count = config.get(COUNT_KEY)
    if count is not None and (type(count) is not int or count != len(main)):
        spelled = STRING_KEY if config.get(STRING_KEY) is not None else LIST_KEY
        raise CheckpointError(
            f"{where}: `{COUNT_KEY}` is {shown(count)}, but `{spelled}` has {len(main)} layers. Correct the wrong one, "
            f"or delete `{COUNT_KEY}`."
        )


def _read_depth(config: Mapping[str, Any], where: str) -> int:
    depth = config.get(MTP_DEPTH_KEY)
    if depth is None:
        return 0
    if type(depth) is not int or not 0 <= depth <= LARGEST_DEPTH:
        raise CheckpointError(
            f"{where}: `{MTP_DEPTH_KEY}` must be a number of MTP steps from 0 to {LARGEST_DEPTH}, not {shown(depth)}"
        )
    return depth
