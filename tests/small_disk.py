"""A real file system that can be filled."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

DISK_BYTES = 16 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of `DISK_BYTES`."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("only root can mount a small file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(disk: Path, leave: int) -> None:
    """Somebody else takes what is free, but for `leave` bytes."""
    free = os.statvfs(disk)
    with suppress(OSError), (disk / "other").open("wb", buffering=0) as file:  # others may write at the same time
        file.write(bytes(max(0, free.f_bavail * free.f_frsize - leave)))
