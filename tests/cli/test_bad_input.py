"""Every kind of bad input ends with exit code 2 and one screen that says what to do, and leaves nothing behind."""

from __future__ import annotations

import json
import shutil

import pytest

PROMPT = '{"prompt": [{"role": "user", "content": "1+1="}], "label": "2"}\n'


def missing_path(tiny, tmp_path):
    return ["--source", tmp_path / "absent"], "does not exist"


def truncated_weights(tiny, tmp_path):
    shutil.copytree(tiny, tmp_path / "broken")
    shard = sorted((tmp_path / "broken").glob("*.safetensors"))[0]
    shard.write_bytes(shard.read_bytes()[:-100])
    return ["--source", tmp_path / "broken"], shard.name


def index_of_an_absent_file(tiny, tmp_path):
    shutil.copytree(tiny, tmp_path / "broken")
    shard = sorted((tmp_path / "broken").glob("*.safetensors"))[0]
    shard.unlink()
    return ["--source", tmp_path / "broken"], shard.name


def layer_out_of_range(tiny, tmp_path):
    return ["--source", tiny, "--set", "slice.layers=0,1,3,99"], "layer 99 is out of range"


def layer_out_of_range_of_a_hub_model(tiny, tmp_path):
    return ["--preset", "ultra-4layer", "--set", "slice.layers=0,1,7,108"], "layer 108 is out of range"


def layer_repeated(tiny, tmp_path):
    return ["--set", "slice.layers=0,1,3,3"], "layer 3 is repeated"


def no_attention(tiny, tmp_path):
    return ["--set", "slice.layers=0,1,2"], "without attention"


def broken_jsonl(tiny, tmp_path):
    (tmp_path / "good.jsonl").write_text(PROMPT)
    (tmp_path / "bad.jsonl").write_text(PROMPT * 2 + "{nope\n")
    return ["--set", "data.train_file=bad.jsonl", "--set", "data.eval_file=good.jsonl"], "bad.jsonl, line 3"


def tp_that_does_not_divide(tiny, tmp_path):
    return ["--set", "parallel.tp=3", "--set", "parallel.world_size=3"], "use 1, 2 or 4 (nearest: 2)"


def tp_that_does_not_divide_a_local_model(tiny, tmp_path):
    return ["--source", tiny, "--set", "parallel.tp=8", "--set", "parallel.world_size=8"], "4 Mamba groups"


def more_pipeline_stages_than_layers(tiny, tmp_path):
    return ["--set", "parallel.pp=5", "--set", "parallel.world_size=5"], "does not divide the 4 layers"


def unknown_preset(tiny, tmp_path):
    return ["--preset", "tinny"], "did you mean tiny?"


def unknown_key(tiny, tmp_path):
    return ["--set", "train.lr=1"], "did you mean train.optimizer.lr?"


def missing_config(tiny, tmp_path):
    return ["--config", "absent.yaml"], "No such file"


def unknown_store(tiny, tmp_path):
    return ["--store", "ftp://host/x"], "is not the address of a store"


CASES = [
    missing_path,
    truncated_weights,
    index_of_an_absent_file,
    layer_out_of_range,
    layer_out_of_range_of_a_hub_model,
    layer_repeated,
    no_attention,
    broken_jsonl,
    tp_that_does_not_divide,
    tp_that_does_not_divide_a_local_model,
    more_pipeline_stages_than_layers,
    unknown_preset,
    unknown_key,
    missing_config,
    unknown_store,
]


@pytest.mark.parametrize("command", ["validate", "train"])
@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_explained_on_one_screen_and_leaves_nothing(cli, tiny, tmp_path, command, case):
    arguments, expected = case(tiny, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    result = cli(command, *arguments)
    shown = " ".join(result.stderr.replace("│", " ").split())
    assert result.exit_code == 2
    assert expected in shown
    assert "Traceback" not in shown and result.stdout == ""
    assert len(result.stderr.splitlines()) <= 24
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("folder", ["file/runs", "/proc/runs"])
def test_an_output_folder_that_cannot_be_written_is_refused(cli, tmp_path, folder):
    (tmp_path / "file").write_text("in the way")
    result = cli("validate", "--output-dir", folder)
    assert result.exit_code == 2 and "cannot write to" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["validate", "--nonsense"],
        ["slice", "a"],
        ["slice", "a", "b", "--layers", "0,x"],
        ["synth", "tiny", "out", "--shard-size", "big"],
        ["synth", "tiny", "out", "--scale", "n_groups"],
        ["synth", "tinny", "out"],
        ["slice", "absent", "out"],
        ["verify", "absent", "absent"],
        ["inspect", "absent"],
        ["report", "absent"],
        ["convert", "absent", "out", "--set", "run_id=x"],
        ["evaluate", "absent", "--set", "run_id=x"],
    ],
)
def test_every_command_refuses_bad_usage_with_2_and_leaves_nothing(cli, tmp_path, arguments):
    result = cli(*arguments)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_slice_that_fails_leaves_no_folder(cli, tiny, tmp_path):
    result = cli("slice", tiny, "out", "--layers", "0,1,3,99")
    assert result.exit_code == 2 and "^^" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_index_that_names_an_absent_file_is_a_problem_to_inspect(cli, tiny, tmp_path):
    shutil.copytree(tiny, tmp_path / "broken")
    index = tmp_path / "broken" / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["lm_head.weight"] = "model-00009-of-00009.safetensors"
    index.write_text(json.dumps(content))
    result = cli("inspect", "broken")
    assert result.exit_code == 2 and "model-00009-of-00009.safetensors" in result.stdout + result.stderr
