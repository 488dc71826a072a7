from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from nemotron_rl.checkpoint import initial
from nemotron_rl.checkpoint.initial import initial_values
from nemotron_rl.checkpoint.layout import CheckpointFolder
from nemotron_rl.checkpoint.synth import plan_synth, synthesize
from nemotron_rl.checkpoint.tensor_table import TensorSpec
from nemotron_rl.checkpoint.verify import verify_checkpoints
from nemotron_rl.errors import InputError, SettingsError, SliceError

DENSE = {"hidden_size": 64, "n_routed_experts": 4, "vocab_size": 300}


def test_the_plan_is_what_is_written(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    report = synthesize("tiny", tmp_path / "out", overrides=DENSE, progress=lambda *state: seen.append(state))
    assert report == plan_synth("tiny", overrides=DENSE)
    folder = CheckpointFolder.open(tmp_path / "out")
    assert len(folder.tensors) == report.tally.total.tensors
    assert sum(entry.nbytes for entry in folder.tensors.values()) == report.tally.total.nbytes
    assert len(list((tmp_path / "out").glob("*.safetensors"))) == report.shards
    assert seen[-1] == (report.tally.total.nbytes,) * 2 and seen == sorted(seen)
    assert folder.config["hidden_size"] == 64


def test_a_seed_gives_the_same_bits_whatever_the_shard_size(tiny: Path, tmp_path: Path) -> None:
    synthesize("tiny", tmp_path / "same", shard_size=300_000)
    synthesize("tiny", tmp_path / "other", seed=1)
    assert len(list((tmp_path / "same").glob("*.safetensors"))) > 10
    assert verify_checkpoints(tiny, tmp_path / "same").identical
    other = verify_checkpoints(tiny, tmp_path / "other")
    constant = {"norm.weight", "norm_f.weight", "enorm.weight", "hnorm.weight", "final_layernorm.weight", "mixer.D"}
    unchanged = set(CheckpointFolder.open(tiny).tensors) - {difference.name for difference in other.differing}
    assert all(any(name.endswith(end) for end in constant) for name in unchanged)


def test_layers_make_the_synthetic_slice(tmp_path: Path) -> None:
    assert synthesize("tiny", tmp_path / "out", layers=[0, 1, 3, 4]).pattern == "ME*E/*E"
    assert json.loads((tmp_path / "out" / "config.json").read_text())["num_hidden_layers"] == 4


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"preset": "tyni"}, SettingsError),
        ({"preset": "tiny", "overrides": {"hiden_size": 3}}, SettingsError),
        ({"preset": "tiny", "overrides": {"vocab_size": 100}}, SettingsError),
        ({"preset": "tiny", "layers": [0, 1]}, SliceError),
        ({"preset": "tiny", "shard_size": -1}, InputError),
    ],
)
def test_a_refused_synthesis_leaves_nothing(
    tmp_path: Path, arguments: dict[str, object], error: type[Exception]
) -> None:
    preset = str(arguments.pop("preset"))
    with pytest.raises(error):
        synthesize(preset, tmp_path / "out", **arguments)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_expert_bias_is_fp32_and_would_not_survive_bf16(tiny: Path) -> None:
    bias = CheckpointFolder.open(tiny).read("backbone.layers.1.mixer.gate.e_score_correction_bias")
    assert bias.dtype == np.float32
    assert len(set(bias)) == len(bias)
    assert len(set(bias.astype(ml_dtypes.bfloat16))) < len(bias)
    assert 0 < np.ptp(bias) < 0.01


def test_mamba_starts_as_mamba_2_does(tiny: Path) -> None:
    folder = CheckpointFolder.open(tiny)
    for layer in (0, 2, 5):
        at = f"backbone.layers.{layer}.mixer."
        step = np.log1p(np.exp(folder.read(at + "dt_bias").astype(np.float64)))
        decay = np.exp(folder.read(at + "A_log").astype(np.float64))
        assert np.all((step > 0.99e-3) & (step < 1.01e-1))
        assert np.all((decay >= 0.99) & (decay <= 16.2))
        assert np.all(folder.read(at + "D").astype(np.float32) == 1)


def test_linear_weights_keep_the_size_of_what_passes_through(tiny: Path) -> None:
    folder = CheckpointFolder.open(tiny)
    into = folder.read("backbone.layers.0.mixer.in_proj.weight").astype(np.float64)
    out = folder.read("backbone.layers.0.mixer.out_proj.weight").astype(np.float64)
    assert into.std() * np.sqrt(128) == pytest.approx(1, rel=0.02)
    assert out.std() * np.sqrt(256 * 16) == pytest.approx(1, rel=0.02)


def test_chunks_do_not_change_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = TensorSpec("x", "F32", (100, 10), "input")
    whole = b"".join(initial_values(spec, 3, 4))
    monkeypatch.setattr(initial, "CHUNK_ELEMENTS", 64)
    parts = [bytes(part) for part in initial_values(spec, 3, 4)]
    assert len(parts) == 16
    assert b"".join(parts) == whole


def test_files_of_a_checkpoint_are_all_there(tiny: Path) -> None:
    assert {file.name for file in tiny.iterdir() if file.suffix != ".safetensors"} == {
        "config.json",
        "generation_config.json",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "chat_template.jinja",
    }
