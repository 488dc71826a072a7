"""Paths that a user named: refused early, and in the user's terms, when the file system cannot even look them up."""

from __future__ import annotations

from pathlib import Path

from nemotron_rl.errors import InputError

_SHOWN = 80


def check_path(path: Path) -> None:
    """Refuse a path that can neither be read nor made; one where nothing is yet passes.

    `Path.exists` and its kin raise an OSError for some of these, and for others they say that nothing is there.

    Raises:
        InputError: A name in it is too long or holds a null byte, its links go in a circle, or a folder is closed.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return  # the caller says which of them it wanted
    except OSError as error:
        raise InputError(f"cannot use {_short(path)}: {error.strerror}; choose another path") from error
    except ValueError as error:
        raise InputError(f"cannot use {_short(path)}: a null byte is in it; choose another path") from error


def check_apart(source: Path, dst: Path) -> None:
    """Refuse to write a result into what it is made from.

    Raises:
        InputError: `dst` is `source`, or lies in it.
    """
    if dst.resolve().is_relative_to(source.resolve()):
        raise InputError(f"{dst} lies in the checkpoint {source} that it would be made from; choose a folder elsewhere")


def nearest_existing(path: Path) -> Path:
    """The path itself, or the folder above it that is nearest; `path` is absolute."""
    while not path.exists():
        path = path.parent
    return path


def _short(path: Path) -> str:
    text = str(path).replace("\0", "\\0")
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 20]}…{text[-19:]}"
