"""Claims about what the commands do when all is well."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from nemotron_rl.cli.options import parse_layers, parse_size
from nemotron_rl.config.load import load_settings


def test_synth_slice_inspect_and_verify_work_on_each_other(cli, tmp_path):
    assert cli("synth", "tiny", "tiny").exit_code == 0
    made = cli("slice", "tiny", "sliced", "--layers", "0,1,3,4")
    assert made.exit_code == 0 and "ME*E/*E is in sliced" in made.stdout
    seen = cli("inspect", "sliced")
    assert seen.exit_code == 0 and "ME*E  (4 layers)" in seen.stdout and "no problems" in seen.stdout
    assert cli("slice", "tiny", "again", "--layers", "0,1,3,4").exit_code == 0
    same = cli("verify", "sliced", "again")
    assert same.exit_code == 0 and "✓ identical: 95 tensors" in same.stdout
    different = cli("verify", "tiny", "sliced")
    assert different.exit_code == 1 and "✗ different" in different.stdout and "and 180 more" in different.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "sliced", "tiny"]


def test_results_are_available_as_json(cli, tiny):
    assert json.loads(cli("inspect", tiny, "--json").stdout)["pattern"] == "MEM*EM-EMEM*EM-E"
    assert json.loads(cli("verify", tiny, tiny, "--json").stdout)["tensors"] == 243


def test_a_synthetic_source_is_made_in_the_cache(cli, tmp_path):
    result = cli("slice", "synth://tiny", "out", "--layers", "3,4", "--mtp", "drop", "--cache-dir", "cache")
    assert result.exit_code == 0 and "*E is in out" in result.stdout
    assert (tmp_path / "cache" / "synth").is_dir()


def test_a_slice_can_be_planned_without_writing_anything(cli, tiny, tmp_path):
    result = cli("slice", tiny, "out", "--layers", "0,1,3,4", "--dry-run")
    assert result.exit_code == 0, result.stderr
    assert "ME*E/*E would be in out" in result.stdout
    needed, fetched = (int(n.replace(",", "")) for n in re.findall(r"([\d,]+) (?:bytes are|would be)", result.stdout))
    assert 0 < needed <= fetched <= 1.02 * needed
    assert re.search(r"headers not counted: \d+ ranges of \d+ files", result.stdout)
    shards = set(re.findall(r"^(model-\S+) +\d", result.stdout, re.MULTILINE))
    assert shards and shards < {file.name for file in tiny.glob("*.safetensors")}, "one is not needed at all"
    assert list(tmp_path.iterdir()) == []


def test_synth_scales_and_plans_without_writing(cli, tmp_path):
    arguments = ["--layers", "0,1,7,8", "--num-experts", "64", "--scale", "vocab_size=1024", "--shard-size", "1GB"]
    result = cli("synth", "ultra-550b-a55b", "out", *arguments, "--dry-run")
    assert result.exit_code == 0 and "ME*E/*E would be in out" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_prints_settings_with_origins_and_stages_and_leaves_nothing(cli, tmp_path):
    result = cli("validate", "--set", "train.steps=3", "--run-id", "x", "--dry-run")
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "steps: 3 # --set" in lines and 'run_id: "x" # --run-id' in lines
    assert "# train 3 steps of 128 samples on 1 rank (tp 1, pp 1, ep 1, dp 1); local, 1 node" in lines
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ([], "# routing replay: on"),
        (["--set", "slice.layers=0,3"], "# routing replay: off: the model has no mixture-of-experts layer"),
        (["--preset", "ultra-4layer"], "# routing replay: off: recording with SGLang 0.5.16 has not been run"),
        (["--set", "train.moe.routing_replay=off"], "# routing replay: off, as train.moe.routing_replay says"),
    ],
)
def test_a_dry_run_says_whether_routes_are_replayed_and_why_not(cli, flags, line):
    lines = cli("train", *flags, "--dry-run").stdout.splitlines()
    (found,) = [one for one in lines if one.startswith("# routing replay:")]
    assert found.startswith(line)


@pytest.mark.parametrize("preset", ["tiny", "ultra-4layer"])
def test_a_dry_run_is_a_settings_file_that_says_the_same(cli, tmp_path, preset):
    text = cli("validate", "--preset", preset, "--run-id", "x", "--dry-run").stdout
    (tmp_path / "again.yaml").write_text(text)
    settings = load_settings(None, config_file=tmp_path / "again.yaml", environ={})
    assert settings == load_settings(preset, overrides=["run_id=x"], environ={})
    assert yaml.safe_load(text)["slice"]["layers"]


def test_train_plans_no_evaluation(cli):
    text = cli("train", "--dry-run", "--set", "warmup.steps=0", "--set", "convert.enabled=false").stdout
    _, _, plan = text.partition("# train would run, ")
    stages = [line.split()[1] for line in plan.splitlines() if line.startswith("#")]
    assert stages == ["download", "prompts", "slice", "train", "publish"]


def test_flags_are_settings(cli):
    flags = ["--source", "synth://tiny", "--cluster", "slurm", "--store", "s3://bucket/x", "--output-dir", "/tmp/out"]
    text = cli("validate", *flags, "--dry-run").stdout
    settings = yaml.safe_load(text)
    assert settings["cluster"]["kind"] == "slurm" and settings["store"]["uri"] == "s3://bucket/x"
    assert "# --cluster" in text and "# --store" in text and "# --output-dir" in text


def test_the_environment_sets_settings(cli, monkeypatch):
    monkeypatch.setenv("NEMOTRON_RL_TRAIN__STEPS", "5")
    assert "environment NEMOTRON_RL_TRAIN__STEPS" in cli("validate", "--dry-run").stdout


def test_version_and_help(cli):
    assert cli("--version").stdout == "nemotron-rl 0.1.0\n"
    help_text = cli("--help").stdout
    for command in ("validate", "synth", "inspect", "slice", "convert", "verify", "train", "evaluate", "report"):
        assert command in help_text and cli(command, "--help").exit_code == 0


@pytest.mark.parametrize(("text", "size"), [("5GB", 5 * 10**9), ("1GiB", 2**30), ("1.5 mb", 1_500_000), ("7", 7)])
def test_sizes(text, size):
    assert parse_size(text) == size


def test_layers():
    assert parse_layers("0,1, 7,8") == [0, 1, 7, 8] and parse_layers(None) is None
