"""One thing that is wrong with the settings, and how all of them are shown together on one screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nemotron_rl.errors import SettingsError

ABSENT: Final = object()
"""No value was given."""
SHOWN = 8
"""Problems shown in full; a screen has about 24 lines and each problem takes two or three."""


@dataclass(frozen=True)
class Problem:
    """A key, what it was set to and where, and what is wrong with that."""

    key: str
    """Dotted path, such as `train.optimizer.lr`."""
    message: str
    """What is wrong, what is allowed and the nearest valid choice."""
    value: object = ABSENT
    """What was given."""
    origin: str = ""
    """Where it was given: `preset tiny`, `file run.yaml`, `environment NEMOTRON_RL_…`, `--set`, `default`."""

    def __str__(self) -> str:
        where = f"   [{self.origin}]" if self.origin else ""
        value = "" if self.value is ABSENT else f" = {_short(self.value)}"
        return f"{self.key}{value}{where}\n    {self.message}"


def raise_problems(problems: Sequence[Problem]) -> None:
    """Raise one SettingsError that lists every problem; return when there is none."""
    if not problems:
        return
    shown = [str(problem) for problem in problems[:SHOWN]]
    if len(problems) > SHOWN:
        rest = ", ".join(problem.key for problem in problems[SHOWN:])
        shown.append(f"and {len(problems) - SHOWN} more: {_short(rest, 200)}")
    count = "1 setting is wrong" if len(problems) == 1 else f"{len(problems)} settings are wrong"
    raise SettingsError("\n".join([f"{count}.", *shown]))


def _short(value: object, width: int = 80) -> str:
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[: width - 1]}…"
