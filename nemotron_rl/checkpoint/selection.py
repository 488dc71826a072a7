"""Which layers a slice keeps: the rules, the suggestion, and the new names. Pure; reads and writes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NoReturn

from nemotron_rl.checkpoint.cover import cheapest_cover
from nemotron_rl.checkpoint.spelling import Pattern, read_pattern, write_pattern
from nemotron_rl.checkpoint.tally import LAYER_NAME, MTP_PREFIX, layer_of
from nemotron_rl.errors import SliceError

Mtp = Literal["keep", "drop"]
Layers = Sequence[int] | Literal["auto"] | None
"""Layers in their new order; `auto` is the cheapest cover, None all of them."""


def check_layers(layers: Sequence[int], pattern: str, source: str) -> None:
    """Refuse a selection that cannot be sliced out of `pattern`; `source` names the checkpoint in the message.

    Raises:
        SliceError: None chosen, a negative one, one out of range, one twice, or no attention among them.
    """
    if not layers:
        _refuse(f"no layers are chosen of {source}", layers, None, pattern)
    for place, layer in enumerate(layers):
        if not 0 <= layer < len(pattern):
            where = f"{source} ({len(pattern)} layers, 0 to {len(pattern) - 1})"
            _refuse(f"layer {layer} is out of range for {where}", layers, place, pattern)
        if layer in layers[:place]:
            _refuse(f"layer {layer} is chosen twice; a layer can be kept once", layers, place, pattern)
    kept = "".join(pattern[layer] for layer in layers)
    if "*" not in kept:
        reason = "Megatron, SGLang and transformers take the KV cache's geometry from an attention layer"
        _refuse(f"the chosen layers of {source} are '{kept}', without attention (*); {reason}", layers, None, pattern)


def select_config(config: Mapping[str, Any], layers: Sequence[int] | None, mtp: Mtp, source: str) -> dict[str, Any]:
    """config.json of a slice, with the pattern in both spellings and nothing else changed; None keeps all layers.

    Raises:
        CheckpointError: The config's pattern cannot be read.
        SliceError: See `check_layers`.
    """
    pattern = read_pattern(config, source)
    if layers is not None:
        check_layers(layers, pattern.main, source)
        pattern = replace(pattern, main="".join(pattern.main[layer] for layer in layers))
    if mtp == "drop":
        pattern = Pattern(pattern.main)
    return write_pattern(config, pattern)


def new_name(name: str, new_layer: Mapping[int, int], mtp: Mtp) -> str | None:
    """What a tensor of the source is called in the slice, None when it is left out."""
    if mtp == "drop" and name.startswith(MTP_PREFIX):
        return None
    layer = layer_of(name)
    if layer is None:
        return name
    if layer not in new_layer:
        return None
    return LAYER_NAME.sub(f"backbone.layers.{new_layer[layer]}.", name, count=1)


def _refuse(what: str, layers: Sequence[int], place: int | None, pattern: str) -> NoReturn:
    """Raise with the flag as the user gave it, a marker under the wrong number, and a selection that works."""
    texts = [str(layer) for layer in layers]
    lines = [f"{what}.", f"  --layers {','.join(texts)}"]
    if place is not None:
        before = len("  --layers ") + sum(len(text) + 1 for text in texts[:place])
        lines.append(" " * before + "^" * len(texts[place]))
    cover = cheapest_cover(pattern)
    start = pattern[: cover[-1] + 1] + ("…" if cover[-1] + 1 < len(pattern) else "")
    kinds = ", ".join(f"{pattern[layer]}={layer}" for layer in cover)
    lines.append(f"  To cover every block type, use {','.join(map(str, cover))} (of {start}: {kinds}).")
    raise SliceError("\n".join(lines))
