"""The cheapest cover of a pattern by trying every selection."""

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


def selections(pattern: str) -> list[tuple[int, ...]]:
    """All of them, each ascending."""
    return [layers for size in range(len(pattern) + 1) for layers in combinations(range(len(pattern)), size)]


def smallest_number_of_layers(pattern: str) -> int:
    """Length of the shortest selection that fulfils every requirement."""
    return min(len(layers) for layers in selections(pattern) if requirements(pattern) <= fulfilled(pattern, layers))


def cheapest(pattern: str, layer_bytes: list[int], needs: set[str]) -> tuple[int, ...]:
    """The selection with all `needs` of fewest bytes; of equals the earliest."""
    enough = [layers for layers in selections(pattern) if needs <= fulfilled(pattern, layers)]
    return min(enough, key=lambda layers: (sum(layer_bytes[i] for i in layers), layers))


def cheapest_in_a_row(pattern: str, layer_bytes: list[int]) -> tuple[int, ...]:
    """As `cheapest`, of the selections without a gap."""
    runs = [tuple(range(start, end)) for end in range(1, len(pattern) + 1) for start in range(end)]
    enough = [run for run in runs if requirements(pattern) <= fulfilled(pattern, run)]
    return min(enough, key=lambda run: (sum(layer_bytes[i] for i in run), run))
