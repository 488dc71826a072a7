"""The folder and metrics of a job that may have been started before, as Slurm does after a node failed. No torch.

The first rank alone acts: `process.from_first_rank(lambda: start_over(request))`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from nemotron_rl.jobs.requests import Request


def start_over(request: Request) -> None:
    """Remove the results and metrics that an earlier start left, of a job that cannot go on where it was."""
    empty_folder(request.out)
    # A new file in its place tells whoever follows it that steps are written again.
    request.metrics.unlink(missing_ok=True)


def empty_folder(folder: Path) -> None:
    """Remove everything in a folder; what links in it point to stays."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
