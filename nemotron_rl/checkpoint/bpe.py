"""A byte-pair vocabulary learned from a few words, the same on every machine. For synthetic checkpoints only."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

Pair = tuple[str, str]


def byte_alphabet() -> dict[int, str]:
    """The printable character that stands for each byte in byte-level BPE (GPT-2's convention).

    Printable Latin-1 bytes stand for themselves; the others, in order, for the characters from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {byte: chr(byte) for byte in printable}
    for place, byte in enumerate(byte for byte in range(256) if byte not in alphabet):
        alphabet[byte] = chr(0x100 + place)
    return alphabet


def learn_merges(words: Counter[str], count: int) -> list[Pair]:
    """Up to `count` merges, most frequent pair first; of equally frequent pairs the alphabetically first.

    `words` are pre-tokenized pieces, spelled in the byte alphabet, with their frequencies.
    """
    pieces = {word: list(word) for word in words}
    merges: list[Pair] = []
    while len(merges) < count:
        pairs: Counter[Pair] = Counter()
        for word, parts in pieces.items():
            for pair in pairwise(parts):
                pairs[pair] += words[word]
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        pieces = {word: merge(parts, best) for word, parts in pieces.items()}
    return merges


def merge(parts: list[str], pair: Pair) -> list[str]:
    """`parts` with every adjacent `pair` joined, from left to right."""
    out: list[str] = []
    place = 0
    while place < len(parts):
        if tuple(parts[place : place + 2]) == pair:
            out.append(parts[place] + parts[place + 1])
            place += 2
        else:
            out.append(parts[place])
            place += 1
    return out
