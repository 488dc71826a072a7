"""Slices that are killed, and slices that are interrupted in other ways."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from nemotron_rl.checkpoint.ranged import fetch as fetching
from nemotron_rl.checkpoint.ranged import journal as journaling
from nemotron_rl.checkpoint.ranged.folder import FolderSource
from nemotron_rl.checkpoint.ranged.hub import HubSource
from nemotron_rl.checkpoint.ranged.journal import resumable_folder
from nemotron_rl.checkpoint.ranged.source import SourceChanged, SourceUnavailable
from nemotron_rl.checkpoint.slicing import slice_checkpoint
from nemotron_rl.errors import InputError
from tests.checkpoint.hub import Hub, serving
from tests.oracles.checkpoint_files import read_checkpoint, sliced

PIECE = 40_000
LAYERS = [0, 1, 3, 4]

_SLICE = """
import sys
from pathlib import Path
from nemotron_rl.checkpoint.ranged.hub import HubSource
from nemotron_rl.checkpoint.slicing import slice_checkpoint
source = HubSource("org/name", "v1", endpoint=sys.argv[1], token="none")
print("fetching", flush=True)
slice_checkpoint(source, Path(sys.argv[2]), [0, 1, 3, 4], piece_bytes=40_000)
"""


def files_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def slice_and_kill(hub: Hub, dst: Path, after_s: float) -> None:
    """Start a slice in a process of its own and kill it, by a signal that none can handle, `after_s` into fetching."""
    with subprocess.Popen([sys.executable, "-c", _SLICE, hub.url, str(dst)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"fetching\n"
        time.sleep(after_s)
        process.send_signal(signal.SIGKILL)


@pytest.mark.slow
def test_a_slice_that_is_killed_again_and_again_ends_as_if_it_had_not_been(tiny: Path, tmp_path: Path) -> None:
    dst, kills = tmp_path / "out" / "dst", random.Random(4)
    slice_checkpoint(tiny, tmp_path / "expected", LAYERS, source_name="hf://org/name@v1")
    with serving(tiny, pause_s=0.08) as hub:
        sent: list[int] = []
        for _ in range(6):
            slice_and_kill(hub, dst, kills.uniform(0.1, 0.6))
            sent.append(len(hub.fetched))
            assert not dst.exists()
        source = HubSource("org/name", "v1", endpoint=hub.url, token="none")
        slice_checkpoint(source, dst, LAYERS, piece_bytes=PIECE)
        source.close()
    expected, got = files_of(tmp_path / "expected"), files_of(dst)
    assert {name for name in got if got[name] != expected.get(name)} == {"nemotron_rl_slice.json"}
    assert got.keys() == expected.keys()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["dst"]
    again = Counter((part.file, part.start, part.size) for part in hub.fetched if part.size > 10_000)
    twice = sum(count - 1 for count in again.values())
    assert sent[0] > 0
    assert twice <= len(sent) * source.workers, "no more than the range in the hands of each worker"
    assert len(again) > source.workers


def test_pieces_that_are_done_are_not_read_again(tiny: Path, tmp_path: Path) -> None:
    """A local source that fails halfway through, for every number of pieces."""
    total = _reads(tiny, tmp_path / "whole")
    for after in range(1, total, 7):
        dst = tmp_path / f"dst{after}"
        first = _Failing(tiny, after)
        with pytest.raises(SourceUnavailable):
            slice_checkpoint(first, dst, LAYERS, source_name="tiny", piece_bytes=PIECE)
        second = _Failing(tiny, after=10**9)
        slice_checkpoint(second, dst, LAYERS, source_name="tiny", piece_bytes=PIECE)
        assert first.pieces + second.pieces <= total + first.workers
        assert files_of(dst) == files_of(tmp_path / "whole")


class _Failing(FolderSource):
    """A folder that cannot be read any more after some pieces."""

    def __init__(self, path: Path, after: int) -> None:
        super().__init__(path)
        self.pieces, self._after = 0, after

    def copy(self, piece, targets):  # type: ignore[no-untyped-def]
        return False  # each piece is read, below

    def read(self, file, start, stop):  # type: ignore[no-untyped-def]
        if file.endswith(".safetensors") and start > 8:
            if self.pieces >= self._after:
                raise SourceUnavailable("gone")
            self.pieces += 1
        yield from super().read(file, start, stop)


def _reads(tiny: Path, dst: Path) -> int:
    source = _Failing(tiny, after=10**9)
    slice_checkpoint(source, dst, LAYERS, source_name="tiny", piece_bytes=PIECE)
    return source.pieces


def test_a_folder_that_is_written_to_while_it_is_read_is_refused(tiny: Path, copy_of, tmp_path: Path) -> None:
    copy = copy_of(tiny)
    source = FolderSource(copy)
    shard = min(copy.glob("*.safetensors"))
    os.utime(shard, ns=(1, 1))
    with pytest.raises(SourceChanged, match=shard.name):
        slice_checkpoint(source, tmp_path / "dst", LAYERS)
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def test_a_disk_that_fills_is_an_error_and_leaves_nothing(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.pwrite, []

    def full(descriptor: int, data: memoryview, offset: int) -> int:
        calls.append(offset)
        if len(calls) > 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data, offset)

    monkeypatch.setattr(fetching.os, "pwrite", full)
    monkeypatch.setattr(FolderSource, "copy", lambda *_: False)
    with pytest.raises(InputError, match=r"cannot write model-.*No space left"):
        slice_checkpoint(tiny, tmp_path / "deep" / "dst", LAYERS, piece_bytes=PIECE)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_is_too_small_is_refused_before_anything_is_fetched(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    with pytest.raises(InputError, match=r"cannot write 9,000,000,000,000,000 bytes"):
        fetching.prepare_targets(tmp_path / "a" / "b", [fetching.Target("x", 9 * 10**15)])
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_two_slices_into_one_folder_are_one_too_many(tmp_path: Path) -> None:
    with (
        resumable_folder(tmp_path / "dst", "key", lambda folder: None) as (folder, _),
        pytest.raises(InputError, match="another process is writing"),
        resumable_folder(tmp_path / "dst", "key", lambda folder: None),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["dst"]
    assert not folder.exists()


def test_a_folder_that_another_process_finished_meanwhile_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = journaling._lock

    def lock_after_the_other(descriptor: int, dst: Path, partial: Path) -> None:
        dst.mkdir()
        (dst / "config.json").touch()
        real(descriptor, dst, partial)

    monkeypatch.setattr(journaling, "_lock", lock_after_the_other)
    with pytest.raises(InputError, match="not empty"), resumable_folder(tmp_path / "dst", "key", pytest.fail):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["dst"]


def test_another_plan_starts_anew(tmp_path: Path) -> None:
    def interrupted(key: str) -> tuple[frozenset[int], list[str]]:
        with (
            pytest.raises(KeyboardInterrupt),
            resumable_folder(tmp_path / "dst", key, lambda folder: (folder / "new").touch()) as (folder, journal),
        ):
            found = journal.done, sorted(path.name for path in folder.iterdir())
            journal.add(len(journal.done))
            (folder / "old").touch()
            raise KeyboardInterrupt
        return found

    assert interrupted("one") == (frozenset(), ["new"])
    assert interrupted("one") == (frozenset({0}), ["new", "old"])
    assert interrupted("two") == (frozenset(), ["new"])
    assert interrupted("one") == (frozenset(), ["new"])


def test_a_journal_line_that_was_cut_off_does_not_count(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), resumable_folder(tmp_path / "dst", "k", lambda _: None) as (_, journal):
        journal.add(7)
        raise KeyboardInterrupt
    with (tmp_path / ".dst.partial" / "journal").open("ab") as file:
        file.write(b"12")
    with resumable_folder(tmp_path / "dst", "k", lambda _: None) as (_, journal):
        assert journal.done == {7}


def test_what_a_kill_after_the_end_leaves_is_swept_up(tiny: Path, tmp_path: Path) -> None:
    slice_checkpoint(tiny, tmp_path / "dst", LAYERS)
    (tmp_path / ".dst.partial").mkdir()
    (tmp_path / ".dst.partial" / "journal").touch()
    with pytest.raises(InputError, match="not empty"), resumable_folder(tmp_path / "dst", "key", lambda _: None):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["dst"]
    assert read_checkpoint(tmp_path / "dst") == sliced(read_checkpoint(tiny), LAYERS, keep_mtp=True)
