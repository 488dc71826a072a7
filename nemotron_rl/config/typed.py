"""Values against the types of their settings, in words that name the key and what is allowed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from nemotron_rl.config.fields import accepts, leaves, nested
from nemotron_rl.config.nearest import nearest
from nemotron_rl.config.problem import Problem
from nemotron_rl.config.settings import Settings

Entries = Mapping[str, tuple[object, str]]


def type_problems(entries: Entries) -> list[Problem]:
    """Every entry (value, origin) that its setting does not accept, in the order of the settings."""
    found = {problem.key: problem for problem in _refused(entries)}
    found |= {problem.key: problem for problem in _accepted_by_accident(entries)}
    return [found[path] for path in leaves() if path in found]


def _refused(entries: Entries) -> Iterator[Problem]:
    try:
        Settings.model_validate(nested({path: value for path, (value, _) in entries.items()}))
    except ValidationError as error:
        for detail in error.errors():
            path, rest = _split(detail["loc"])
            value, origin = entries[path]
            item = f"item {rest[0] + 1} " if rest and isinstance(rest[0], int) else ""
            yield Problem(path, f"{item}{_words(detail, value)}", value, origin)


def _accepted_by_accident(entries: Entries) -> Iterator[Problem]:
    """What pydantic would convert without a word: true as 1, and numbers that JSON cannot hold, as text too."""
    for path, (value, origin) in entries.items():
        if isinstance(value, bool) and not accepts(path, bool):
            yield Problem(path, f"should be {_type_name(path)}, not a boolean", value, origin)
        elif not _finite(path, value):
            yield Problem(path, "should be a finite number", value, origin)


def _finite(path: str, value: object) -> bool:
    """False for infinities and NaN where a number is meant: pydantic reads them out of `inf`, which YAML calls text."""
    if isinstance(value, str) and accepts(path, float):
        try:
            value = float(value)
        except ValueError:
            return True  # refused for what it is
    return not isinstance(value, float) or math.isfinite(value)


def _split(location: tuple[int | str, ...]) -> tuple[str, tuple[int | str, ...]]:
    """The setting that pydantic's location lies in, and the rest of the location."""
    for length in range(len(location), 0, -1):
        path = ".".join(map(str, location[:length]))
        if path in leaves():
            return path, location[length:]
    raise AssertionError(f"no setting at {location}")


def _words(detail: ErrorDetails, value: object) -> str:
    message = detail["msg"].replace("Input should be", "should be").replace("String should", "should")
    if detail["type"] == "literal_error":
        guess = nearest(str(value), re.findall(r"'([^']*)'", detail["ctx"]["expected"]))
        return message + (f" (did you mean {guess}?)" if guess else "")
    if detail["type"] == "string_pattern_mismatch":
        return "should be at most 64 letters, digits, '.', '_' and '-', the first a letter or a digit"
    return message[0].lower() + message[1:]


def _type_name(path: str) -> str:
    names: list[tuple[Any, str]] = [(int, "an integer"), (float, "a number"), (tuple, "a list"), (str, "text")]
    return next((name for kind, name in names if accepts(path, kind)), "a path or text")
