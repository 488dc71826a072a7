"""A folder that appears complete or not at all: written beside its destination, then renamed once."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nemotron_rl.errors import InputError
from nemotron_rl.paths import check_path, nearest_existing


def check_new_folder(dst: Path) -> None:
    """Refuse a destination that cannot be written or that already holds something; writes nothing.

    Raises:
        InputError: `dst` is no path, exists and is not an empty folder, or its parent cannot be written.
    """
    check_path(dst)
    if dst.absolute() == Path.cwd():
        raise InputError(f"'{dst}' is the current folder; choose a new one")
    if dst.is_symlink() or (dst.exists() and not dst.is_dir()):
        raise InputError(f"{dst} exists and is not a folder; choose a new folder")
    if dst.is_dir() and any(dst.iterdir()):
        raise InputError(f"{dst} exists and is not empty; choose a new folder, or delete this one")
    above = nearest_existing(dst.absolute().parent)
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {dst}: {above} is not a folder that you may write to")


@contextmanager
def new_folder(dst: Path) -> Iterator[Path]:
    """An empty folder to fill; it becomes `dst` when the block ends, and is removed when the block raises.

    Raises:
        InputError: `dst` cannot be written or already holds something; or the file system is full.
    """
    check_new_folder(dst)
    parent = dst.absolute().parent
    made = made_folders(dst)
    with writing(dst):
        parent.mkdir(parents=True, exist_ok=True)
        partial = parent / f".{dst.name}.partial-{secrets.token_hex(8)}"
        partial.mkdir()
    try:
        yield partial
        with writing(dst):
            partial.rename(dst)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        for folder in made:
            with suppress(OSError):  # somebody else may have put something there
                folder.rmdir()
        raise


def make_once(folder: Path, make: Callable[[], object]) -> Path:
    """`folder`, made by `make` (which uses `new_folder`) unless it is there; another process may win the race.

    Raises:
        InputError: `make` could not write it, and nobody else has.
    """
    if not folder.exists():
        try:
            make()
        except InputError:
            if not folder.exists():
                raise
    return folder


def made_folders(dst: Path) -> list[Path]:
    """The folders above `dst` that do not exist yet, innermost first."""
    parent = dst.absolute().parent
    return [folder for folder in (parent, *parent.parents) if not folder.exists()]


@contextmanager
def writing(dst: Path) -> Iterator[None]:
    """Refusals of the file system as an InputError about `dst`."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write {dst}: {error.strerror}") from error
