"""Numbers as people read them."""

from __future__ import annotations

import math


def number(value: float | None, digits: int = 3) -> str:
    """Up to `digits` significant digits, scientific when very small or large; a dash for None."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return {math.inf: "∞", -math.inf: "-∞"}.get(value, "nan")
    return f"{value:.{digits}g}"


def share(value: float | None) -> str:
    """0.125 as `12.5%`."""
    return "–" if value is None else f"{100 * value:.1f}%"


def seconds(value: float | None) -> str:
    """`4.2 s`, `3 min 05 s`, `2 h 07 min`."""
    if value is None:
        return "–"
    if value < 59.95:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def size(nbytes: float | None) -> str:
    """`512 B`, `3.4 MB`, `71.2 GB`: decimal units, as object stores bill them."""
    return "–" if nbytes is None else scaled(nbytes, "B")


def scaled(value: float, unit: str) -> str:
    """A whole number of many `unit`s, such as bytes, with a decimal prefix."""
    for prefix in ("", "k", "M", "G"):
        if abs(value) < 999.5:
            return f"{value:.3g} {prefix}{unit}" if prefix else f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:,.3g} T{unit}"


def count(value: float | None) -> str:
    """`35,810`, and from a million on `24.6 M`, `1.12 B`."""
    if value is None:
        return "–"
    for limit, unit in ((1e9, "B"), (1e6, "M")):
        if value >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value:,.0f}"


def plural(number: int, noun: str) -> str:
    """`1 file`, `1,040 files`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def printable(text: str) -> str:
    """Text from elsewhere as a terminal may show it: control characters, which could drive it, as their escapes."""
    return "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)
