"""Download, prompts and slice, called without Prefect."""

from __future__ import annotations

import os

import pytest

from nemotron_rl.checkpoint.layout import CheckpointFolder
from nemotron_rl.data.prompts import load_prompts
from nemotron_rl.errors import CheckpointError, DataError, InputError, SettingsError, SliceError
from nemotron_rl.preflight import preflight
from tasks.download import download, fingerprint
from tasks.prompts import make_prompts
from tasks.slice import slice_layers
from tasks.stage import run_store
from tasks.timeline import read_timeline

LINE = '{"prompt": [{"role": "user", "content": "3+4="}], "label": "7"}\n'


def cached_stages(settings) -> dict[str, bool]:
    return {entry.stage.name: entry.stage.cached for entry in read_timeline(settings.run_dir)}


def test_a_second_run_takes_source_prompts_and_slice_from_the_store(make_settings):
    made = {}
    for run_id in ("one", "two"):
        settings = make_settings(run_id)
        source = download.fn(settings)
        made[run_id] = (source, make_prompts.fn(settings), slice_layers.fn(source, settings))
        assert cached_stages(settings) == dict.fromkeys(["download", "prompts", "slice"], run_id == "two")
    assert made["one"] == made["two"]


def test_a_slice_is_a_checkpoint_of_the_chosen_layers(make_settings):
    settings = make_settings()
    artifact = slice_layers.fn(download.fn(settings), settings)
    store = run_store(settings)
    assert CheckpointFolder.open(store.fetch(artifact)).pattern.main == "ME*E"
    assert store.manifest(artifact).facts["pattern"] == "ME*E/*E"


def test_other_layers_make_another_slice_of_the_same_source(make_settings):
    settings, other = make_settings(), make_settings(slice__layers=[0, 1, 2, 3])
    source = download.fn(settings)
    assert slice_layers.fn(source, settings) != slice_layers.fn(source, other)


def test_another_seed_is_another_source(make_settings):
    one, two = (download.fn(make_settings(source__seed=seed)) for seed in (0, 1))
    assert one.artifact.digest != two.artifact.digest


def test_a_folder_is_another_source_when_a_file_changes(make_settings):
    folder = download.fn(make_settings()).folder
    before = fingerprint(str(folder), folder)
    assert fingerprint(folder.as_uri(), folder) == before
    os.utime(folder / "config.json", ns=(1, 1))
    assert fingerprint(str(folder), folder) != before


def test_generated_prompts_are_split_without_overlap(make_settings):
    settings = make_settings()
    folder = run_store(settings).fetch(make_prompts.fn(settings))
    training, held_out = load_prompts(folder / "train.jsonl"), load_prompts(folder / "eval.jsonl")
    assert len(held_out) == settings.data.eval_prompts
    assert not {p.messages for p in training} & {p.messages for p in held_out}


def test_prompt_files_are_known_by_their_content(make_settings, tmp_path):
    train, held_out = tmp_path / "train.jsonl", tmp_path / "eval.jsonl"
    train.write_text(LINE * 3)
    held_out.write_text(LINE * 60)
    settings = make_settings(data__train_file=str(train), data__eval_file=str(held_out), train__prompts_per_step=1)
    first = make_prompts.fn(settings)
    assert len(load_prompts(run_store(settings).fetch(first) / "eval.jsonl")) == settings.data.eval_prompts
    os.utime(train)
    assert make_prompts.fn(settings) == first
    train.write_text(LINE * 4)
    assert make_prompts.fn(settings) != first


@pytest.mark.parametrize(
    ("changes", "error", "says"),
    [
        ({"source__uri": "no/such/folder"}, CheckpointError, "does not exist"),
        ({"source__uri": "gopher://x"}, CheckpointError, "unknown scheme"),
        ({"slice__layers": [0, 99]}, (SliceError, SettingsError), "99"),
        ({"slice__layers": [0, 1]}, (SliceError, SettingsError), "attention"),
        ({"store__uri": "file:///proc/nothing"}, InputError, "cannot write"),
        ({"output_dir": "/proc/nothing"}, InputError, "cannot write"),
        ({"train__resume": "/no/such/run"}, InputError, "/no/such/run: it does not exist"),
        (
            {"slice__layers": [0, 3], "slice__mtp": "drop", "train__moe__expert_bias": "updated"},
            SettingsError,
            "no mixture-of-experts layer whose bias",
        ),
        ({"train__resume": 3}, InputError, "step_3 is not a complete checkpoint; complete steps: none"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(make_settings, tmp_path, changes, error, says):
    with pytest.raises(error, match=says):
        preflight(make_settings(**changes))
    assert list(tmp_path.iterdir()) == []


def test_a_broken_prompt_line_is_named_before_anything_is_written(make_settings, tmp_path):
    train, held_out = tmp_path / "train.jsonl", tmp_path / "eval.jsonl"
    train.write_text(LINE + "{broken\n")
    held_out.write_text(LINE)
    settings = make_settings(data__train_file=str(train), data__eval_file=str(held_out), train__prompts_per_step=1)
    with pytest.raises(DataError, match="line 2"):
        preflight(settings)
    assert not settings.output_dir.exists()


def test_a_truncated_source_is_named_before_anything_is_written(make_settings, tmp_path):
    folder = download.fn(make_settings()).folder
    shard = next(folder.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-10])
    elsewhere = tmp_path / "other"
    with pytest.raises(CheckpointError, match=shard.name):
        preflight(make_settings(source__uri=str(folder), output_dir=str(elsewhere)))
    assert not elsewhere.exists()
