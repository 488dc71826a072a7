"""The files of a local folder, by the path they will have in an artifact."""

from __future__ import annotations

from pathlib import Path

from nemotron_rl.errors import StoreError
from nemotron_rl.store.manifest import portable_path


def list_folder(folder: Path) -> dict[str, Path]:
    """Path below `folder` (forward slashes) to file, sorted. Links to files count as files; empty folders are left out.

    Raises:
        StoreError: there is no file, or something that is neither file nor folder, or a name that cannot be stored.
    """
    if not folder.is_dir():
        raise StoreError(f"{folder} is not a folder; there is nothing to store")
    files = {_name(folder, path): path for path in sorted(folder.rglob("*")) if _is_file(path)}
    if not files:
        raise StoreError(f"{folder} holds no file; whoever should have filled it failed without saying so")
    return files


def _is_file(path: Path) -> bool:
    if path.is_dir() and not path.is_symlink():
        return False
    if not path.is_file():
        raise StoreError(f"{path} is neither a file nor a folder (a broken link, a linked folder, a socket); remove it")
    return True


def _name(folder: Path, path: Path) -> str:
    try:
        return portable_path(path.relative_to(folder).as_posix())
    except ValueError as error:
        raise StoreError(f"{folder} has a file that cannot be stored: {error}; rename it") from error
