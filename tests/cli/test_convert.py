"""`convert`: bad input is found before a job is started."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from nemotron_rl.checkpoint.converted import write_source_tensors
from nemotron_rl.cli.convert import split_flags


@pytest.fixture
def folders(tiny, tmp_path):
    """`hf`, a sound checkpoint, and `td`, which looks like its conversion; both in the current folder."""
    shutil.copytree(tiny, tmp_path / "hf")
    (tmp_path / "td" / "torch_dist").mkdir(parents=True)
    shutil.copyfile(tiny / "config.json", tmp_path / "td" / "config.json")
    write_source_tensors(tiny, tmp_path / "td")
    return tmp_path


def without(path, key):
    config = json.loads(path.read_text())
    del config[key]
    path.write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("change", "arguments", "expected"),
    [
        (None, ["hf", "out", "--to", "hf"], "is not a converted checkpoint: it has no folder torch_dist"),
        (None, ["td", "out"], "is a torch_dist folder already; --to hf converts it back"),
        (None, ["hf", "td"], "exists and is not empty"),
        (None, ["hf", "out", "--to", "onnx"], "'torch_dist', 'hf'"),
        (None, ["hf", "out", "--tp", "3"], "use 1, 2 or 4"),
        (None, ["hf", "out", "--tp", "2", "--ranks", "3"], "parallel.world_size"),
        (None, ["hf", "out", "--pp", "5"], "does not divide the 16 layers"),
        (None, ["td", "out", "--to", "hf", "--shard-size", "big"], "should be a size"),
        (lambda root: without(root / "hf" / "config.json", "n_groups"), ["hf", "out"], "`n_groups` is missing"),
        (lambda root: without(root / "td" / "config.json", "head_dim"), ["td", "out", "--to", "hf"], "head_dim"),
        (
            lambda root: (root / "td" / "tensors.json").unlink(),
            ["td", "out", "--to", "hf"],
            "tensors.json cannot be read",
        ),
        (
            lambda root: (root / "td" / "config.json").unlink(),
            ["td", "out", "--to", "hf"],
            "config.json: cannot be read",
        ),
    ],
)
def test_bad_input_is_explained_and_leaves_nothing(cli, folders, change, arguments, expected):
    if change:
        change(folders)
    before = sorted(folders.rglob("*"))
    result = cli("convert", *arguments)
    assert result.exit_code == 2, result.output
    assert expected in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.stderr
    assert sorted(folders.rglob("*")) == before


@pytest.mark.parametrize(
    ("sizes", "ranks"),
    [((None, None, None), None), ((2, None, None), 2), ((2, 3, 4), 12), ((4, 1, 6), 12), ((None, None, 8), 8)],
)
def test_as_few_ranks_as_the_sizes_need(sizes, ranks):
    assert split_flags(*sizes, None)["--ranks"] == ranks
    assert split_flags(*sizes, 24)["--ranks"] == 24


def test_a_disk_without_room_is_noticed_before_a_job_is_started(cli, folders, monkeypatch):
    full = shutil.disk_usage(folders)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    result = cli("convert", "hf", "out")
    assert result.exit_code == 2
    assert "its file system has 1,000 free" in " ".join(result.stderr.replace("│", " ").split())
    assert sorted(path.name for path in folders.iterdir()) == ["hf", "td"]


@pytest.mark.parametrize("side", ["source", "destination"])
def test_a_pipe_in_the_place_of_a_record_is_refused(cli, tiny, tmp_path, side):
    shutil.copytree(tiny, tmp_path / "source")
    (tmp_path / "destination").mkdir()
    os.mkfifo(tmp_path / side / ".nemotron_rl_convert.json")
    result = cli("convert", "source", "destination", "--output-dir", "runs")
    assert result.exit_code == 2
    assert "no regular file" in " ".join(result.stderr.replace("│", " ").split())
