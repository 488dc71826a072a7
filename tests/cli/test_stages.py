"""`convert` and `evaluate` alone: bad input is found before anything is made."""

from __future__ import annotations

import shutil

import pytest

from nemotron_rl.cli.stages import distinct_names
from nemotron_rl.errors import InputError


@pytest.fixture
def broken(tiny, tmp_path):
    folder = tmp_path / "broken"
    shutil.copytree(tiny, folder)
    sorted(folder.glob("*.safetensors"))[0].unlink()
    return folder


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["convert", "{broken}", "out"], "model-00001-of-00003.safetensors"),
        (["convert", "absent", "out"], "does not exist"),
        (["convert", "{tiny}", "out", "--output-dir", "/dev/null/x"], "cannot write to"),
        (["convert", "{tiny}", "out", "--set", "parallel.tp=8", "--set", "parallel.world_size=8"], "parallel.tp"),
        (["evaluate", "{broken}"], "model-00001-of-00003.safetensors"),
        (["evaluate", "{tiny}", "--prompts", "absent.jsonl"], "cannot read the prompt file"),
        (["evaluate", "{tiny}", "--output-dir", "/dev/null/x"], "cannot write to"),
        (["evaluate", "{tiny}", "{tiny}"], "is named twice"),
    ],
)
def test_bad_input_is_explained_and_leaves_nothing(cli, tiny, broken, tmp_path, arguments, expected):
    before = sorted(tmp_path.rglob("*"))
    result = cli(*(argument.format(tiny=tiny, broken=broken) for argument in arguments))
    assert result.exit_code == 2, result.output
    assert expected in " ".join(result.stderr.replace("│", " ").split())
    assert sorted(tmp_path.rglob("*")) == before


def test_checkpoints_of_one_folder_name_keep_their_rows():
    assert distinct_names(["a/base", "b/base", "b/trained"]) == ["a/base", "b/base", "trained"]
    with pytest.raises(InputError, match="named twice"):
        distinct_names(["a/base", "a/base"])
