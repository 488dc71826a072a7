"""Byte-level BPE by its definition: cut, spell in bytes, join the pair of lowest rank until none is left."""

from __future__ import annotations

import re
from itertools import pairwise

_PIECES = re.compile(r"<\|im_start\|>|<\|im_end\|>|\d| ?[^\W\d_]+| ?(?:[^\s\w]|_)+|\s+")


def encode(text: str, tokens: dict[str, int], merges: list[tuple[str, str]], alphabet: dict[int, str]) -> list[int]:
    """Token ids of `text`; the numerals of other scripts are not treated."""
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    ids = []
    for piece in _PIECES.findall(text):
        if piece in tokens and piece.startswith("<|"):
            ids.append(tokens[piece])
            continue
        parts = [alphabet[byte] for byte in piece.encode()]
        while True:
            ranked = [(ranks[pair], place) for place, pair in enumerate(pairwise(parts)) if pair in ranks]
            if not ranked:
                break
            _, place = min(ranked)
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
        ids += [tokens[part] for part in parts]
    return ids
