"""Slices from a local folder: by the kernel's own copy, and by reading where the kernel cannot."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from nemotron_rl.checkpoint.ranged.folder import FolderSource
from nemotron_rl.checkpoint.ranged.plan import Part, Piece
from nemotron_rl.checkpoint.ranged.source import SourceChanged
from nemotron_rl.checkpoint.slicing import slice_checkpoint
from tests.oracles.checkpoint_files import read_checkpoint, sliced

LAYERS = [0, 1, 3, 4]
MEMORY = Path("/dev/shm")


@pytest.fixture
def other_file_system(tmp_path: Path) -> Iterator[Path]:
    """A folder that the kernel cannot copy from into tmp_path by itself."""
    if not MEMORY.is_dir() or MEMORY.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is only one file system")
    with TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)


@pytest.mark.parametrize("piece_bytes", [10_000, None])
def test_a_slice_is_the_same_whether_the_kernel_copies_or_not(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int | None
) -> None:
    slice_checkpoint(tiny, tmp_path / "copied", LAYERS, piece_bytes=piece_bytes)
    monkeypatch.setattr(FolderSource, "copy", lambda *_: False)
    slice_checkpoint(tiny, tmp_path / "read", LAYERS, piece_bytes=piece_bytes)
    copied, read = ({f.name: f.read_bytes() for f in (tmp_path / n).iterdir()} for n in ("copied", "read"))
    assert copied == read
    assert read_checkpoint(tmp_path / "copied") == sliced(read_checkpoint(tiny), LAYERS, keep_mtp=True)


def test_a_slice_of_another_file_system_has_the_bytes_of_its_source(
    tiny: Path, tmp_path: Path, other_file_system: Path
) -> None:
    for file in tiny.iterdir():
        (other_file_system / file.name).write_bytes(file.read_bytes())
    slice_checkpoint(other_file_system, tmp_path / "dst", LAYERS)
    assert read_checkpoint(tmp_path / "dst") == sliced(read_checkpoint(tiny), LAYERS, keep_mtp=True)


def test_the_kernel_is_not_asked_again_when_it_cannot(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    source = FolderSource(tmp_path)
    piece = Piece("file", (Part("file", 2, 5, "target", 1),))
    with (tmp_path / "target").open("wb") as writable:
        assert source.copy(piece, {"target": writable.fileno()})
    assert (tmp_path / "target").read_bytes() == b"\x0023456"
    with (tmp_path / "target").open("rb") as readable:
        assert not source.copy(piece, {"target": readable.fileno()}), "it may not be written"
    with (tmp_path / "target").open("wb") as writable:
        assert not source.copy(piece, {"target": writable.fileno()})


@pytest.mark.parametrize("change", [lambda file: os.truncate(file, 1000), lambda file: os.utime(file, ns=(1, 1))])
def test_a_file_that_changes_is_named(
    tiny: Path, copy_of: Callable[[Path], Path], tmp_path: Path, change: Callable[[Path], None]
) -> None:
    copy = copy_of(tiny)
    source = _ChangesLater(copy, change)
    with pytest.raises(SourceChanged, match=source.shard.name):
        slice_checkpoint(source, tmp_path / "dst", LAYERS)
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


class _ChangesLater(FolderSource):
    """A folder of which one shard is written to when its tensors begin to be copied."""

    def __init__(self, path: Path, change: Callable[[Path], None]) -> None:
        super().__init__(path)
        self.shard, self._change = min(path.glob("*.safetensors")), change

    def copy(self, piece, targets):  # type: ignore[no-untyped-def]
        if piece.file == self.shard.name:
            self._change(self.shard)
        return super().copy(piece, targets)
