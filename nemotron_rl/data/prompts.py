"""Prompt sets as JSON lines, in the shape of dapo-math-17k. Reads and writes; tokenizing is the rollout's business."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nemotron_rl.config.base import Frozen
from nemotron_rl.config.nearest import nearest
from nemotron_rl.errors import DataError
from nemotron_rl.paths import check_path

ROLES = ("system", "user", "assistant", "tool")


class Message(Frozen):
    """One turn of a chat."""

    role: str
    """`system`, `user`, `assistant` or `tool`."""
    content: str
    """Its text."""


class Prompt(Frozen):
    """A question and its answer."""

    index: int
    """Position in its file, from 0."""
    messages: tuple[Message, ...]
    """The chat up to the answer; at least one message."""
    label: str
    """The right answer."""

    def chat(self) -> list[dict[str, str]]:
        """The messages as a chat template takes them."""
        return [message.model_dump() for message in self.messages]


def load_prompts(path: Path) -> list[Prompt]:
    """All prompts of a file; see `iter_prompts`. A file without prompts is an error."""
    prompts = list(iter_prompts(path))
    if not prompts:
        raise DataError(f"{path} has no prompts; expected JSON lines such as\n  {EXAMPLE}")
    return prompts


def iter_prompts(path: Path) -> Iterator[Prompt]:
    """Read prompts one line at a time; blank lines are skipped.

    Raises:
        InputError: `path` is no path.
        DataError: The file cannot be read, or a line is not a prompt; says which line and what is wrong with it.
    """
    check_path(path)
    index = 0
    for number, line in _lines(path):
        if line.strip():
            try:
                yield parse_prompt(line, index)
            except ValueError as error:
                raise DataError(f"{path}, line {number}: {error}\n  {_excerpt(line)}\n  expected {EXAMPLE}") from error
            index += 1


def write_prompts(path: Path, prompts: Iterable[Prompt]) -> Path:
    """Write prompts so that `load_prompts` reads them back, and return the path."""
    with path.open("w", encoding="utf-8") as file:
        for prompt in prompts:
            row = {"prompt": prompt.chat(), "label": prompt.label}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return path


EXAMPLE = '{"prompt": [{"role": "user", "content": "3+4="}], "label": "7"}'


def parse_prompt(line: str, index: int) -> Prompt:
    """One JSON line as a prompt. Other keys than `prompt`, `label` and `reward_model` are ignored.

    Raises:
        ValueError: Says what is wrong, in words for the user.
    """
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON, column {error.colno}: {error.msg}") from error
    if not isinstance(row, dict):
        raise ValueError(f"expected a JSON object, got {_kind(row)}")
    return Prompt(index=index, messages=_messages(_required(row, "prompt")), label=_label(row))


def _messages(value: Any) -> tuple[Message, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"`prompt` should be a list with at least one message, got {_kind(value)}")
    return tuple(_message(item, position) for position, item in enumerate(value))


def _message(value: Any, position: int) -> Message:
    where = f"`prompt[{position}]`"
    if not isinstance(value, dict):
        raise ValueError(f"{where} should be an object with `role` and `content`, got {_kind(value)}")
    for key in ("role", "content"):
        if not isinstance(value.get(key), str):
            raise ValueError(f"{where} should have a text `{key}`, got {_kind(value.get(key))}")
    if value["role"] not in ROLES:
        raise ValueError(f"{where} has the role {value['role']!r}; use one of {', '.join(ROLES)}")
    return Message(role=value["role"], content=value["content"])


def _label(row: dict[str, Any]) -> str:
    if "label" in row or "reward_model" not in row:
        label = _required(row, "label")
    else:
        judge = row["reward_model"]
        label = judge.get("ground_truth") if isinstance(judge, dict) else None
    if not isinstance(label, str):
        raise ValueError(f"the label should be text, got {_kind(label)}; write it in quotes")
    return label


def _required(row: dict[str, Any], key: str) -> Any:
    if key in row:
        return row[key]
    guess = nearest(key, row)
    raise ValueError(
        f"has no `{key}`" + (f", but `{guess}`" if guess else f"; its keys are {', '.join(row) or 'none'}")
    )


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                yield number, line
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, line {number + 1} or later: not UTF-8 text ({error.reason})") from error
    except OSError as error:
        raise DataError(f"cannot read the prompt file {path}: {error.strerror}") from error


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "a boolean", int: "a number", float: "a number"}
    return "an empty list" if value == [] else names.get(type(value), "nothing")


def _excerpt(line: str) -> str:
    text = line.strip()
    return text if len(text) <= 100 else f"{text[:99]}…"
