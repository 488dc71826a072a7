"""Commands that meet a full file system say so, end with 2, and leave nothing on it."""

from __future__ import annotations

import pytest

from tests.small_disk import fill


@pytest.mark.parametrize("after_the_shards", [0, 4_000, 12_000, 30_000])
def test_a_disk_without_room_for_the_small_files_of_a_synthetic_checkpoint(cli, tiny, small_disk, after_the_shards):
    pages = sum(-(-path.stat().st_size // 4096) * 4096 for path in tiny.glob("*.safetensors*"))
    fill(small_disk, pages + after_the_shards)
    result = cli("synth", "tiny", small_disk / "made")
    assert result.exit_code == 2, result.output
    assert "No space left" in " ".join(result.stderr.replace("│", " ").split())
    assert [path.name for path in small_disk.iterdir()] == ["other"]


@pytest.mark.slow
def test_a_disk_that_fills_while_a_checkpoint_is_converted(cli, tiny, tmp_path, small_disk):
    nbytes = sum(path.stat().st_size for path in tiny.iterdir())
    fill(small_disk, nbytes + 8192)  # the result is larger than the source
    result = cli("convert", tiny, small_disk / "made", "--output-dir", tmp_path / "runs")
    assert result.exit_code == 2, result.output
    shown = " ".join(result.stderr.replace("│", " ").split())
    assert "cannot write" in shown and "bytes are free there" in shown
    assert [path.name for path in small_disk.iterdir()] == ["other"]


def test_an_output_folder_without_room_is_told_before_a_job_runs(cli, tiny, tmp_path, small_disk):
    fill(small_disk, 0)
    result = cli("convert", tiny, tmp_path / "made", "--output-dir", small_disk / "runs")
    assert result.exit_code == 2, result.output
    assert "No space left" in " ".join(result.stderr.replace("│", " ").split())
    assert not (tmp_path / "made").exists()
