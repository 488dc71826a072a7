"""Slices onto file systems that have no room left, really."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Lock

import pytest

from nemotron_rl.checkpoint.ranged.folder import FolderSource
from nemotron_rl.checkpoint.ranged.hub import HubSource
from nemotron_rl.checkpoint.slicing import slice_checkpoint
from nemotron_rl.errors import InputError
from tests.checkpoint.hub import serving
from tests.oracles.checkpoint_files import read_checkpoint, sliced
from tests.small_disk import fill

LAYERS = [0, 1, 3, 4]
PIECE = 100_000


@pytest.mark.parametrize("leave", [0, 300_000])
def test_a_disk_that_fills_while_a_hub_is_read_is_an_error_and_leaves_nothing(
    tiny: Path, small_disk: Path, leave: int
) -> None:
    with serving(tiny) as hub:
        hub.faults = [lambda *_: None] * 20 + [lambda *_: fill(small_disk, leave)]
        source = HubSource("org/name", "v1", endpoint=hub.url, token="none")
        with pytest.raises(InputError, match=r"cannot write .*No space left"):
            slice_checkpoint(source, small_disk / "deep" / "dst", LAYERS, piece_bytes=PIECE)
        assert [path.name for path in small_disk.iterdir()] == ["other"]
        (small_disk / "other").unlink()
        slice_checkpoint(source, small_disk / "deep" / "dst", LAYERS, piece_bytes=PIECE)
        source.close()
    assert read_checkpoint(small_disk / "deep" / "dst") == sliced(read_checkpoint(tiny), LAYERS, keep_mtp=True)


@pytest.mark.parametrize("at_piece", [0, 7, 20])
def test_a_disk_that_fills_while_a_folder_is_copied_is_an_error_and_leaves_nothing(
    tiny: Path, small_disk: Path, at_piece: int
) -> None:
    source = _FillsDisk(tiny, small_disk, at_piece)
    with pytest.raises(InputError, match=r"cannot write \S+: No space left"):
        slice_checkpoint(source, small_disk / "dst", LAYERS, piece_bytes=PIECE)
    assert [path.name for path in small_disk.iterdir()] == ["other"]


class _FillsDisk(FolderSource):
    """A folder; when a certain piece of it is copied, somebody else fills the disk."""

    def __init__(self, path: Path, disk: Path, at_piece: int) -> None:
        super().__init__(path)
        self._disk, self._left, self._counting = disk, at_piece, Lock()

    def copy(self, piece, targets):  # type: ignore[no-untyped-def]
        with self._counting:  # several threads copy
            now = self._left == 0
            self._left -= 1
        if now:
            fill(self._disk, leave=0)
        return super().copy(piece, targets)


def test_a_disk_that_is_full_already_is_refused_by_its_free_bytes(tiny: Path, small_disk: Path) -> None:
    fill(small_disk, leave=100_000)
    with pytest.raises(InputError, match=r"cannot write [\d,]+ bytes: the file system of .* has [\d,]+ free"):
        slice_checkpoint(tiny, small_disk / "dst", LAYERS)
    assert [path.name for path in small_disk.iterdir()] == ["other"]


@pytest.mark.parametrize("limit", [5_000, 1_000_000])
def test_the_command_line_says_that_a_file_may_not_grow(
    tiny: Path, tmp_path: Path, limit: int, run_cli: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """A limit of the shell (ulimit -f), or a quota."""
    done = run_cli("slice", str(tiny), "out/dst", "--layers", "0,1,3,4", limit=limit)
    assert done.returncode == 2
    assert "cannot write out/dst: File too large" in done.stderr and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def run_cli(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command line in a process of its own, which may write files of `limit` bytes."""

    def run(*arguments: str, limit: int) -> subprocess.CompletedProcess[str]:
        code = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
        code += "from nemotron_rl.cli import main; main()"
        command = [sys.executable, "-B", "-c", code, *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run
