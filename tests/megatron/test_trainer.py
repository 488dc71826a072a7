"""The real HybridModel on 1 and 2 ranks: weights, log-probs, MTP, updates, conversion."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nemotron_rl.checkpoint.layout import CheckpointFolder
from nemotron_rl.checkpoint.verify import verify_checkpoints
from nemotron_rl.rollout.reference.load import folder_weights

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("program.py")
SPLITS = {"one": (1, {}), "dp2": (2, {}), "tp2": (2, {"tp": 2}), "ep2": (2, {"ep": 2}), "pp2": (2, {"pp": 2})}


@pytest.fixture(scope="session")
def checkpoint(six_layers: Path) -> Path:
    return six_layers


@pytest.fixture(scope="session")
def seen(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """What the program saw at a split over ranks; run once each."""
    results: dict[str, dict[str, Any]] = {}

    def run(split: str) -> dict[str, Any]:
        if split not in results:
            ranks, axes = SPLITS[split]
            out = tmp_path_factory.mktemp(split) / "seen.json"
            launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
            flags = [word for axis, size in axes.items() for word in (f"--{axis}", str(size))]
            done = subprocess.run(
                [*launcher, str(PROGRAM), str(checkpoint), str(out), *flags],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr[-6000:]
            results[split] = json.loads(out.read_text()) | {"folder": str(out.parent)}
        return results[split]

    return run


@pytest.mark.parametrize("split", SPLITS)
def test_views_of_all_ranks_parameters_are_what_is_exported(split: str, seen: Any) -> None:
    views = seen(split)["views"]
    here = views.pop("here")
    assert views == {"incomplete": [], "different": [], "in_place": True}
    assert (here == 1) == (split in ("one", "dp2"))
    assert here >= 0.5 or split == "pp2"


@pytest.mark.parametrize("split", SPLITS)
def test_every_tensor_is_loaded_and_exported_bit_for_bit(split: str, seen: Any, checkpoint: Path) -> None:
    loaded = seen(split)["loaded"]
    assert loaded["missing"] == []
    assert loaded["different"] == []
    assert loaded["tensors"] == len(dict(folder_weights(checkpoint)))


@pytest.mark.parametrize("split", SPLITS)
def test_trainer_and_engine_agree_beyond_one_chunk(split: str, seen: Any) -> None:
    assert 0 < seen(split)["engine_difference"] <= 1e-4


@pytest.mark.parametrize("split", SPLITS)
def test_the_proof_covers_every_tensor(split: str, seen: Any, checkpoint: Path) -> None:
    weights = dict(folder_weights(checkpoint))
    assert seen(split)["proof"] == {
        "tensors": len(weights),
        "bytes": sum(4 * t.numel() for t in weights.values()),
    }


def test_the_mtp_loss_is_the_cross_entropy_two_tokens_ahead(seen: Any) -> None:
    mtp = seen("one")["mtp"]
    assert mtp["targets"] > 0
    assert mtp["recorded"] == pytest.approx(mtp["loop"], rel=1e-5)
    assert mtp["accepted"] == mtp["top"]
    assert seen("one")["update"]["update/mtp_loss"] == pytest.approx(mtp["loop"], rel=1e-5)


def test_a_detached_head_leaves_the_trunk_without_gradient(seen: Any) -> None:
    gradient = seen("one")["trunk_gradient"]
    assert gradient["trunk"] == 0.0
    assert gradient["mtp"] > 0.0


def test_an_update_moves_the_head_the_experts_and_the_trunk_but_not_the_expert_bias(seen: Any) -> None:
    changed = seen("one")["changed"]
    assert any(name.startswith("mtp.") for name in changed)
    assert any(".experts." in name for name in changed)
    assert "backbone.embeddings.weight" in changed
    assert not any(name.endswith("e_score_correction_bias") for name in changed)


@pytest.mark.parametrize("split", [s for s in SPLITS if s != "one"])
def test_a_split_over_ranks_gives_the_same_update(split: str, seen: Any) -> None:
    one, other = seen("one"), seen(split)
    for got, want in zip(other["logprobs"], one["logprobs"], strict=True):
        assert got == pytest.approx(want, abs=2e-5)
    any_padding = {"update/padding": 0.0}  # which depends on the split, as it should
    assert other["update"] | any_padding == pytest.approx(one["update"] | any_padding, rel=1e-5)
    ranks, axes = SPLITS[split]
    name = f"after-{ranks}-{axes.get('tp', 1)}-{axes.get('pp', 1)}-{axes.get('ep', 1)}.pt"
    expected = torch.load(Path(one["folder"]) / "after-1-1-1-1.pt")
    for tensor, value in torch.load(Path(other["folder"]) / name).items():
        # A step moves a weight by up to lr = 1e-3; rounding may not move it by more than a hundredth of that.
        torch.testing.assert_close(value, expected[tensor], atol=1e-5, rtol=0, msg=lambda m, t=tensor: f"{t}: {m}")


@pytest.mark.parametrize("split", SPLITS)
def test_the_reference_model_is_the_start_and_swapping_it_changes_nothing(split: str, seen: Any) -> None:
    assert seen(split)["reference_equals_start"]
    assert seen(split)["reference_leaves_weights"]


@pytest.mark.parametrize("split", SPLITS)
def test_torch_dist_keeps_every_bit_and_a_step_at_learning_rate_zero_too(split: str, seen: Any) -> None:
    assert seen(split)["converted"]
    assert seen(split)["step_at_lr_zero"]


@pytest.mark.parametrize("split", ["one", "tp2", "ep2"])
def test_an_export_has_the_names_types_and_files_of_its_source(split: str, seen: Any, checkpoint: Path) -> None:
    exported = Path(seen(split)["folder"]) / "exported"
    comparison = verify_checkpoints(checkpoint, exported)
    assert comparison.missing == comparison.extra == ()
    assert 0 < len(comparison.differing) <= comparison.tensors  # it was trained
    source, target = CheckpointFolder.open(checkpoint).tensors, CheckpointFolder.open(exported).tensors
    assert {n: (t.dtype, t.shape) for n, t in source.items()} == {n: (t.dtype, t.shape) for n, t in target.items()}
    assert (exported / "config.json").read_bytes() == (checkpoint / "config.json").read_bytes()
    assert {f.name for f in checkpoint.iterdir() if "safetensors" not in f.name} == {
        f.name for f in exported.iterdir() if "safetensors" not in f.name
    }
