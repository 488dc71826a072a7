"""Artifact files as a local folder: downloaded and checked, or only checked. Knows nothing of how they got there."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nemotron_rl.errors import InputError, StoreError
from nemotron_rl.store.manifest import FileEntry, Manifest
from nemotron_rl.store.objects import Objects

FILES_AT_ONCE = 4


def require_intact(folder: Path, manifest: Manifest, remedy: str) -> Path:
    """Return `folder` when it has every file of the manifest, byte for byte. Each file is read once.

    Raises:
        StoreError: a file is missing, has another size, or other bytes.
    """

    def check(entry: FileEntry) -> None:
        path = folder / entry.path
        if not path.is_file():
            raise StoreError(f"{path} is missing\n  To repair it, {remedy}.")
        if (size := path.stat().st_size) != entry.size:
            raise StoreError(f"{path} has {size} bytes instead of {entry.size}\n  To repair it, {remedy}.")
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        if sha256 != entry.sha256:
            raise StoreError(
                f"{path} was altered: sha256 {sha256} instead of {entry.sha256}\n  To repair it, {remedy}."
            )

    with ThreadPoolExecutor(FILES_AT_ONCE, thread_name_prefix="check") as pool:
        for _ in pool.map(check, manifest.files):
            pass
    return folder


def fetch_files(objects: Objects, name: str, manifest: Manifest, target: Path, remedy: str) -> Path:
    """Download the manifest's files below `name` into the folder `target`, unless it is there already.

    `target` appears at once and complete, also when several processes fetch: the first one to finish wins.

    Raises:
        InputError: the cache cannot be written.
        StoreError: a file is missing, truncated or altered; `remedy` says what to do.
    """
    if target.exists():
        return require_intact(target, manifest, f"delete {target} and run again")
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        _download_all(objects, name, manifest, partial, remedy)
        _publish(partial, target)
    except OSError as error:
        raise InputError(
            f"cannot write the cache {target}: {error.strerror}\n  Make room, or choose another --output-dir."
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _download_all(objects: Objects, name: str, manifest: Manifest, folder: Path, remedy: str) -> None:
    def get(entry: FileEntry) -> None:
        path = folder / entry.path
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            copied = objects.download(f"{name}/{entry.path}", path)
        except FileNotFoundError as error:
            raise StoreError(f"{objects.uri}/{name}/{entry.path} is missing\n  To repair it, {remedy}.") from error
        if (copied.size, copied.sha256) != (entry.size, entry.sha256):
            raise StoreError(
                f"{objects.uri}/{name}/{entry.path} is not what the manifest says: {copied.size} bytes, sha256 "
                f"{copied.sha256}, instead of {entry.size} bytes, {entry.sha256}\n  To repair it, {remedy}."
            )

    folder.mkdir(parents=True)
    with ThreadPoolExecutor(FILES_AT_ONCE, thread_name_prefix="download") as pool:
        for _ in pool.map(get, manifest.files):
            pass


def _publish(partial: Path, target: Path) -> None:
    """Rename, unless another process was first: a rename onto a folder with files in it fails."""
    try:
        os.rename(partial, target)
    except OSError:
        if not target.is_dir():
            raise
