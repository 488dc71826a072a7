"""Claims about where settings come from, and about the errors of a load."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.config.fields import accepts, flat, leaves, nested
from nemotron_rl.config.load import load, load_settings
from nemotron_rl.config.presets import preset_names
from nemotron_rl.config.settings import Settings
from nemotron_rl.errors import SettingsError

LR = "train.optimizer.lr"


def message(preset="tiny", **arguments) -> str:
    with pytest.raises(SettingsError) as caught:
        load_settings(preset, **{"environ": {}, **arguments})
    return str(caught.value)


@pytest.mark.parametrize("preset", preset_names())
def test_every_preset_loads(preset):
    assert load_settings(preset, environ={}).preset == preset


def test_each_source_overrides_the_weaker_ones(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("train: {optimizer: {lr: 2.0}, steps: 7}")
    environ = {"NEMOTRON_RL_TRAIN__OPTIMIZER__LR": "3.0"}
    read = [
        load("tiny", environ={}),
        load("tiny", config_file=file, environ={}),
        load("tiny", config_file=file, environ=environ),
        load("tiny", config_file=file, environ=environ, overrides=["train.optimizer.lr=4.0"]),
    ]
    assert [loaded.settings.train.optimizer.lr for loaded in read] == [
        read[0].settings.train.optimizer.lr,
        2.0,
        3.0,
        4.0,
    ]
    assert [loaded.origins[LR].split()[0] for loaded in read] == ["preset", "file", "environment", "--set"]
    assert read[-1].settings.train.steps == 7


def test_a_section_keeps_the_defaults_of_its_place():
    """`warmup.optimizer.lr` defaults to 1e-3 although OptimizerSettings itself says 1e-6."""
    settings = load_settings("ultra-4layer", overrides=["warmup.optimizer.beta1=0.5"], environ={})
    assert settings.warmup.optimizer.lr == 1e-3
    assert (
        load_settings("ultra-4layer", overrides=["evaluate.sampling.top_k=3"], environ={}).evaluate.sampling.temperature
        == 0
    )


def test_the_strongest_mention_of_a_preset_wins(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("preset: ultra-4layer")
    assert load_settings(None, config_file=file, environ={}).preset == "ultra-4layer"
    assert load_settings(None, config_file=file, environ={"NEMOTRON_RL_PRESET": "tiny"}).preset == "tiny"
    assert load_settings("tiny", config_file=file, environ={}).preset == "tiny"
    assert load_settings(None, environ={}).preset == "tiny"


def test_tags_of_processes_are_not_settings():
    load_settings("tiny", environ={"NEMOTRON_RL_JOB": "x", "NEMOTRON_RL_TEST_SERVICE": "y", "PATH": "/bin"})


def test_a_run_is_named_after_its_preset_and_the_time():
    assert re.fullmatch(r"tiny-\d{8}-\d{6}", load_settings("tiny", environ={}).run_id)
    assert load_settings("tiny", overrides=["run_id=2026"], environ={}).run_id == "2026"


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("train.optimizer.lr=1e-6", LR, 1e-6),
        ("slice.layers=[0, 1]", "slice.layers", (0, 1)),
        ("slice.layers=0,1,7,8", "slice.layers", (0, 1, 7, 8)),
        ("slice.layers=3", "slice.layers", (3,)),
        ("slice.layers=null", "slice.layers", None),
        ("convert.enabled=false", "convert.enabled", False),
        ("store.uri=s3://bucket/prefix", "store.uri", "s3://bucket/prefix"),
        ("cluster.partition=2026-01-01", "cluster.partition", "2026-01-01"),
        ("cluster.account=on", "cluster.account", "on"),
        ("gates.logprob_abs_diff_max=", "gates.logprob_abs_diff_max", None),
    ],
)
def test_values_are_read_as_yaml(text, key, value):
    assert flat(load_settings("tiny", overrides=[text], environ={}))[key] == value


def test_a_mapping_of_overrides_is_taken_as_it_is():
    assert load_settings("tiny", overrides={"train.steps": 3}, environ={}).train.steps == 3


def test_all_errors_are_reported_at_once():
    text = message(
        overrides=["train.lr=1e-6", "train.steps=many", "parallel.tp=3", "model.backend=cdua"],
        environ={"NEMOTRON_RL_SEEED": "1"},
    )
    assert "did you mean train.optimizer.lr?" in text
    assert "train.steps = many   [--set]" in text
    assert "parallel.tp = 3" in text and "use 1, 2 or 4 (nearest: 2)" in text
    assert "should be 'cpu' or 'cuda' (did you mean cuda?)" in text
    assert "[environment NEMOTRON_RL_SEEED]" in text and "did you mean seed?" in text


def test_a_hundred_errors_still_fit_on_a_screen():
    assert len(message(overrides=[f"no.such.key{i}=1" for i in range(100)]).splitlines()) <= 22


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("train.optimizer.lr=fast", "should be a valid number"),
        ("train.optimizer.lr=.nan", "should be a finite number"),
        ("train.optimizer.lr=.inf", "should be a finite number"),
        ("train.optimizer.lr=-1", "should be greater than or equal to 0"),
        ("train.steps=1.5", "should be a valid integer"),
        ("train.steps=true", "should be an integer, not a boolean"),
        ("slice.layers=0,x", "item 2 should be a valid integer"),
        ("train=3", "is a section, not a value; its keys are steps"),
        ("train.steps.more=3", "train.steps holds a value and has no keys of its own"),
        ("train.steps", "should be KEY=VALUE"),
        ("lr=1", "sections are algorithm, cluster"),
        ("gatess.x=1", "unknown key"),
        ("run_id=a b", "at most 64 letters"),
        ("preset=tinny", "did you mean tiny?"),
    ],
)
def test_a_wrong_value_is_explained(override, expected):
    assert expected in message(None, overrides=[override])


@pytest.mark.parametrize("number", ["inf", "-inf", "Infinity", ".inf", "1e999", "nan", ".NaN"])
def test_every_number_among_the_settings_has_to_be_finite(number):
    keys = [path for path in leaves() if accepts(path, float)]
    assert len(keys) > 20
    for key in keys:
        assert f"{key} = " in (text := message(overrides=[f"{key}={number}"])) and "should be a finite number" in text
        assert "should be a finite number" in message(environ={"NEMOTRON_RL_" + key.replace(".", "__").upper(): number})


def test_a_rule_is_not_reported_about_a_key_that_is_wrong_anyway():
    assert "multiple of" not in message(overrides=["parallel.tp=x"])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("train: [", "line 1 is not valid YAML"),
        ("train:\n  steps: 1\n  steps: 2", "line 3 is not valid YAML: the key 'steps' is repeated"),
        ("- a", "should be a YAML mapping"),
        ("trian: {steps: 3}", "did you mean train?"),
        ("train: {steps: {a: 1}}", "should be a valid integer"),
    ],
)
def test_a_broken_file_is_explained(tmp_path, content, expected):
    file = tmp_path / "run.yaml"
    file.write_text(content)
    assert expected in message(config_file=file)


def test_a_missing_file_is_named(tmp_path):
    assert "No such file" in message(config_file=tmp_path / "absent.yaml")


def test_an_empty_file_or_section_says_nothing(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("train:\n")
    assert load_settings("tiny", config_file=file, environ={}).train == load_settings("tiny", environ={}).train


def test_settings_survive_json():
    settings = load_settings("ultra-4layer", environ={})
    assert Settings.model_validate_json(settings.model_dump_json()) == settings


def test_flat_and_nested_are_inverse():
    settings = load_settings("tiny", environ={})
    assert set(flat(settings)) == set(leaves())
    assert Settings.model_validate(nested(flat(settings))) == settings


@given(st.sampled_from(sorted(leaves())), st.text(max_size=20))
def test_any_text_is_a_value_or_a_settings_error(key, text):
    try:
        load_settings("tiny", overrides=[f"{key}={text}"], environ={})
    except SettingsError as error:
        assert "setting" in str(error)
