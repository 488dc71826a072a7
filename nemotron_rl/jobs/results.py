"""The folder of a job's results, when the job may have been started before."""

from __future__ import annotations

import shutil
from pathlib import Path

from nemotron_rl.megatron import process


def empty_folder(folder: Path) -> None:
    """Remove what an earlier start of the job left half-written; a collective call, of which the first rank acts."""
    process.from_first_rank(lambda: _empty(folder))


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
