"""The cheapest cover of a pattern by trying every selection, shortest and earliest first."""

from __future__ import annotations

from itertools import combinations


def requirements(pattern: str) -> set[str]:
    """Every kind of mixer with its feed-forward that occurs, and every block type outside such pairs."""
    pairs = {pattern[i : i + 2] for i in range(len(pattern) - 1) if pattern[i] in "M*" and pattern[i + 1] in "E-"}
    return pairs | (set(pattern) - set("".join(pairs)))


def fulfilled(pattern: str, layers: tuple[int, ...]) -> set[str]:
    """What a selection has; a pair counts when its two layers are neighbours in the source."""
    singles = {pattern[layer] for layer in layers}
    pairs = {pattern[i] + pattern[i + 1] for i in layers if i + 1 in layers}
    return singles | pairs


def smallest_number_of_layers(pattern: str) -> int:
    """Length of the shortest selection that fulfils every requirement."""
    for size in range(len(pattern) + 1):
        for layers in combinations(range(len(pattern)), size):
            if requirements(pattern) <= fulfilled(pattern, layers):
                return size
    raise AssertionError("the whole pattern fulfils everything")
