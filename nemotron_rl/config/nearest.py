"""What the user probably meant: the closest valid name or number. Used by every message about a wrong choice."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """The choice that is spelled most like `name`, or None when nothing is close."""
    by_lower = {choice.lower(): choice for choice in choices}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def nearest_key(path: str, valid: Iterable[str]) -> str | None:
    """The valid dotted key closest to `path`.

    A key of the same last name wins (`train.lr` means `train.optimizer.lr`), the one that shares most of its leading
    parts first; after that the most similar spelling of the whole path.
    """
    valid = list(valid)
    parts = path.split(".")
    last = nearest(parts[-1], {key.rsplit(".", 1)[-1] for key in valid})
    namesakes = [key for key in valid if key.rsplit(".", 1)[-1] == last]
    if not namesakes:
        return nearest(path, valid)
    return max(namesakes, key=lambda key: difflib.SequenceMatcher(None, path, key).ratio())


def nearest_number(value: int, choices: Iterable[int]) -> int:
    """The choice closest to `value`; of two equally close ones the smaller."""
    return min(choices, key=lambda choice: (abs(choice - value), choice))


def divisors(number: int) -> list[int]:
    """Every positive divisor of a positive number, ascending."""
    return [candidate for candidate in range(1, number + 1) if number % candidate == 0]


def nearest_multiple(value: int, unit: int) -> int:
    """The multiple of `unit`, at least one, closest to `value`."""
    return max(unit, round(value / unit) * unit)


def one_of(choices: Iterable[object]) -> str:
    """`a, b or c`."""
    texts = [str(choice) for choice in choices]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"
