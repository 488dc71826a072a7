"""JSON from files that may be broken or hostile: bounded in size and depth, no name twice, text that can be written."""

from __future__ import annotations

import json
import re
import reprlib
from collections import Counter
from typing import Any

from nemotron_rl.errors import CheckpointError

DEEPEST = 64
"""Levels of lists and objects; Python's own parser and printer give up near 1,000, at a depth of their choice."""
MOST_VALUES = 4_000_000
"""A value of two bytes of text takes up to 200 bytes of memory. The largest published index has 100,000."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_LONGEST_TEXT = 200
_SHORT = reprlib.Repr(maxlevel=3, maxstring=_LONGEST_TEXT, maxother=80, maxlong=80, maxlist=8, maxdict=8)


def shown(value: object) -> str:
    """A value from a file as a message may show it: short, on one line, and without control characters."""
    return _SHORT.repr(value)


def shortened(text: str) -> str:
    """A name from a file as it is, unless it is absurdly long."""
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def parse_object(data: bytes, where: str) -> dict[str, Any]:
    """The JSON object that `data` is; `where` begins the message when it is not one.

    NaN and Infinity are read: published configs have them (`time_step_limit`).

    Raises:
        CheckpointError: Not UTF-8, not JSON, not an object, a name twice in one object, half a surrogate pair, or more
            values or levels than any checkpoint has.
    """
    if data.count(b",") + data.count(b"[") + data.count(b"{") > MOST_VALUES:
        raise CheckpointError(f"{where}: has more than {MOST_VALUES:,} values; no checkpoint needs so many")

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) != len(pairs):
            ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
            raise CheckpointError(f"{where}: the name {shown(twice)} occurs twice in one object; remove one of them")
        return fields

    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=unique)
    except RecursionError as error:
        raise CheckpointError(_too_deep(where)) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{where}: is not valid JSON: {error!s:.200}") from error
    except ValueError as error:  # the only other one that json raises: Python refuses to convert so many digits
        raise CheckpointError(f"{where}: has a whole number of thousands of digits; no checkpoint needs one") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{where}: is not a JSON object, but {type(value).__name__}")
    if not _is_shallow(value):
        raise CheckpointError(_too_deep(where))
    if _SURROGATE.search(data):
        _check_text(value, where)
    return value


def _too_deep(where: str) -> str:
    return f"{where}: has more than {DEEPEST} levels of lists and objects"


def _is_shallow(value: object) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ())
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return True
    return False


def _check_text(value: object, where: str) -> None:
    """Refuse half a surrogate pair: JSON can spell it, but it is no text and can be neither printed nor written."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise CheckpointError(f"{where}: has {half!a}, half of a character, in a name or a text") from error
