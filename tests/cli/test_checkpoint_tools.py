"""Claims about inspect, verify, slice and synth that are more than their happy path."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants

from nemotron_rl.checkpoint.layout import CheckpointFolder
from tests.checkpoint.hub import serving

BIAS = "backbone.layers.1.mixer.gate.e_score_correction_bias"


@pytest.fixture
def with_nan(tiny: Path, tmp_path: Path) -> Path:
    """The tiny checkpoint with two NaN and an infinity in one bf16 tensor, and an infinity in one of fp32."""
    folder = Path(shutil.copytree(tiny, tmp_path / "with_nan"))
    checkpoint = CheckpointFolder.open(folder)
    two_nan, infinity = np.array([0x7FC0, 0xFFFF, 0xFF80], "<u2"), np.array([0x7F800000], "<u4")
    for name, bits in {"lm_head.weight": two_nan, BIAS: infinity}.items():
        entry = checkpoint.entry(name)
        with (folder / entry.file).open("r+b") as file:
            file.seek(entry.offset)
            file.write(bits.tobytes())
    return folder


@pytest.fixture
def hub(tiny, monkeypatch):
    with serving(tiny) as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.url)  # both come from HF_ENDPOINT on import
        template = f"{running.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield running


def test_a_scan_names_and_counts_what_is_not_finite(cli, tiny, with_nan):
    assert cli("inspect", with_nan).exit_code == 0
    found = cli("inspect", with_nan, "--scan")
    assert found.exit_code == 2
    assert "2 tensors hold values that are not finite" in " ".join(found.stdout.split())
    scan = json.loads(cli("inspect", with_nan, "--scan", "--json").stdout)["scan"]
    counts = {item["name"]: (item["nan"], item["inf"]) for item in scan["not_finite"]}
    assert counts == {"lm_head.weight": (2, 1), BIAS: (0, 1)}
    sound = cli("inspect", tiny, "--scan")
    assert sound.exit_code == 0 and "none with NaN or infinity" in sound.stdout


def test_of_a_remote_checkpoint_only_headers_are_fetched_unless_it_is_scanned(cli, hub, tiny, with_nan):
    weights = sum(file.stat().st_size for file in tiny.glob("*.safetensors"))
    seen = cli("inspect", "hf://org/name@v1", "--json")
    assert seen.exit_code == 0, seen.stderr
    assert json.loads(seen.stdout)["name"] == "hf://org/name@v1"
    assert json.loads(seen.stdout)["tally"] == json.loads(cli("inspect", tiny, "--json").stdout)["tally"]
    assert hub.bytes_sent < weights / 10
    hub.folder = with_nan
    assert cli("inspect", "hf://org/name@v1", "--scan").exit_code == 2
    assert hub.bytes_sent > weights / 2


def test_remote_checkpoints_are_compared_bit_by_bit(cli, hub, tiny, with_nan):
    same = cli("verify", "hf://org/name", tiny)
    assert same.exit_code == 0 and "✓ identical: 243 tensors" in same.stdout
    different = cli("verify", with_nan, "hf://org/name@v1", "--json")
    assert different.exit_code == 1
    elements = {item["name"]: item["elements"] for item in json.loads(different.stdout)["differing"]}
    assert elements == {"lm_head.weight": 3, BIAS: 1}


def test_layers_are_chosen_with_reasons(cli, tiny, tmp_path):
    result = cli("slice", tiny, tmp_path / "out", "--layers", "auto")
    assert result.exit_code == 0, result.stderr
    text = " ".join(result.stdout.split())
    assert "Layers 0,1,3,4,5,6 (ME*EM-) are the cheapest that have ME, *E, M-: every block type" in text
    assert "0,1,3,6 ME*- 1,783,920 every block type, but without *E, M-" in text
    assert "✓ 0,1,3,4,5,6 ME*EM- 2,482,368 chosen" in text
    assert "0–6 MEM*EM- 2,752,496 all of it without a gap" in text
    assert CheckpointFolder.open(tmp_path / "out").pattern.main == "ME*EM-"
    assert json.loads((tmp_path / "out" / "nemotron_rl_slice.json").read_text())["layers"] == [0, 1, 3, 4, 5, 6]


def test_ultras_cheapest_layers_are_those_of_the_preset(cli):
    text = cli("synth", "ultra-550b-a55b", "out", "--layers", "auto", "--dry-run").stdout
    assert "ME*E/*E would be in out" in text
    assert "35,809,063,168 parameters: 24,593,452,800 and 11,215,610,368 in the MTP head" in text
    assert text == cli("synth", "ultra-550b-a55b", "out", "--layers", "0,1,7,8", "--dry-run").stdout


@pytest.mark.parametrize(
    ("preset", "says"),
    [
        ("super-120b-a12b", "42,683 tensors, 247,222,108,160 bytes"),
        ("nano-4b", "263 tensors, 7,947,113,664 bytes, 3,973,556,832 parameters"),
        ("nano-4b", "Geometry: nano-4b (NVIDIA-Nemotron-3-Nano-4B-BF16; known: S1)"),
        ("ultra-550b-a55b", "inferred or unknown: bos_token_id"),
    ],
)
def test_a_dry_run_has_the_exact_numbers_and_says_how_certain_they_are(cli, preset, says):
    assert says in cli("synth", preset, "out", "--dry-run").stdout


def test_a_preset_is_inspected_without_being_made(cli, tmp_path):
    result = cli("inspect", "synth://ultra-550b-a55b", "--cache-dir", tmp_path / "cache")
    assert result.exit_code == 0 and "1,121,049,257,984" in result.stdout and "mlp_bias" in result.stdout
    known = json.loads(cli("inspect", "synth://ultra-550b-a55b", "--json").stdout)["geometry"]
    assert known["marks"]["hidden_size"] == "known: S8" and "inferred" in known["marks"]["mlp_bias"]
    assert {source["id"] for source in known["sources"]} >= {"S8", "S9", "S10"}
    assert cli("inspect", "synth://ultra").exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_of_scaled_sizes_claims_no_published_geometry(cli, tiny, tmp_path):
    assert json.loads(cli("inspect", tiny, "--json").stdout)["geometry"]["preset"] == "tiny"
    assert cli("synth", "tiny", tmp_path / "wide", "--hidden-size", 64).exit_code == 0
    assert json.loads(cli("inspect", tmp_path / "wide", "--json").stdout)["geometry"] is None


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.mark.parametrize("make", [Path.mkdir, _pipe, _loop, lambda path: path.symlink_to("/dev/zero")])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json", "model-00001-of-00003.safetensors"])
def test_what_is_no_file_is_not_read(cli, tiny, tmp_path, name, make):
    folder = Path(shutil.copytree(tiny, tmp_path / "odd"))
    (folder / name).unlink()
    make(folder / name)
    for command in (["inspect", folder, "--scan"], ["verify", folder, tiny], ["slice", folder, tmp_path / "dst"]):
        result = cli(*command)
        assert result.exit_code == 2, result.output
    assert [path.name for path in tmp_path.iterdir()] == ["odd"]


def test_a_config_that_describes_a_billion_tensors_is_refused_before_they_are_listed(cli, tiny, tmp_path):
    folder = Path(shutil.copytree(tiny, tmp_path / "huge"))
    config = json.loads((folder / "config.json").read_text())
    pattern = {"hybrid_override_pattern": "*" + "E" * 9_000, "layers_block_type": None, "num_hidden_layers": None}
    (folder / "config.json").write_text(json.dumps(config | pattern | {"n_routed_experts": 60_000}))
    result = cli("inspect", folder)
    text = " ".join(result.stderr.replace("│", " ").split())
    assert result.exit_code == 2 and "describes 1,080," in text and "no more than 500,000 are read" in text


def test_a_tensor_larger_than_the_disk_and_without_content_is_no_reason_to_allocate_it(cli, tiny, tmp_path):
    folder = Path(shutil.copytree(tiny, tmp_path / "sparse"))
    size = shutil.disk_usage(tmp_path).free + (1 << 34)
    header = json.dumps({"mtp.x": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    with (folder / "model-extra.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + size)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    index["weight_map"]["mtp.x"] = "model-extra.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert json.loads(cli("inspect", folder, "--json").stdout)["tally"]["by_block"]["mtp"]["nbytes"] > size
    result = cli("slice", folder, tmp_path / "dst")
    assert result.exit_code == 2 and "free" in result.stderr
    assert cli("slice", folder, tmp_path / "dst", "--layers", "3,4", "--mtp", "drop").exit_code == 0
