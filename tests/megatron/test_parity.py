"""A model with two MTP depths computes the same in every layout over 1, 2 and 4 ranks, padded and packed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from nemotron_rl.checkpoint.layout import CheckpointFolder
from nemotron_rl.planner.shards import Shard, model_sizes, stage_shards
from nemotron_rl.rollout.reference.load import folder_weights
from tests.megatron.claims_program import CUTS
from tests.megatron.parity_program import LAYOUTS, MODES, SHAPES

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
SPLITS = [name for name in LAYOUTS if name != "one"]
LOGITS, GRADIENTS = 1e-5, 2e-5
"""Largest relative differences, as the largest |a - b| over the largest |b| of a tensor."""


@pytest.fixture(scope="module")
def checkpoints(six_layers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The six layers twice: `repeated` applies the MTP layer at two depths, `separate` has weights for each."""
    folder = tmp_path_factory.mktemp("two-depths")
    for name, options in (("repeated", {}), ("separate", {"mtp_use_repeated_layer": False})):
        shutil.copytree(six_layers, folder / name)
        config = json.loads((folder / name / "config.json").read_text())
        config |= {"num_nextn_predict_layers": 2} | options
        (folder / name / "config.json").write_text(json.dumps(config))
    second = {}
    for tensor, values in folder_weights(six_layers):
        if found := re.fullmatch(r"mtp\.layers\.(\d)\.(.*)", tensor):
            second[f"mtp.layers.{int(found[1]) + 2}.{found[2]}"] = values.flip(0).contiguous()
    save_file(second, folder / "separate" / "second.safetensors")
    index_file = folder / "separate" / "model.safetensors.index.json"
    index = json.loads(index_file.read_text())
    index["weight_map"] |= dict.fromkeys(second, "second.safetensors")
    index_file.write_text(json.dumps(index))
    return folder


@pytest.fixture(scope="module")
def two_depths(checkpoints: Path) -> Path:
    return checkpoints / "repeated"


@pytest.fixture(scope="module")
def out(two_depths: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the program wrote what it saw in each layout."""
    folder = tmp_path_factory.mktemp("seen")
    argv = [sys.executable, "-m", "tests.megatron.parity_program", str(two_depths), str(folder), *LAYOUTS]
    argv += ["claims", "separate"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    return folder


@pytest.fixture(scope="module")
def seen_in(out: Path) -> Callable[[str], dict[str, Any]]:
    """What was seen in a layout."""
    return cache(lambda layout: torch.load(out / f"{layout}.pt"))


@pytest.fixture(scope="module")
def one(seen_in: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    return seen_in("one")


@pytest.fixture(scope="module")
def claims(out: Path) -> dict[str, Any]:
    return torch.load(out / "claims.pt")


def worst(got: dict[str, Tensor], want: dict[str, Tensor]) -> tuple[float, str]:
    """The largest relative difference over all tensors, and whose it is."""
    assert got.keys() == want.keys()
    return max((relative(got[name], want[name]), name) for name in want)


def metrics(seen: dict[str, Any]) -> dict[str, float]:
    """Of an update, without what layouts may differ in."""
    return {name: value for name, value in seen["update"].items() if name != "train/padding"}


def relative(got: Tensor, want: Tensor) -> float:
    assert got.shape == want.shape
    largest = float(want.abs().max())
    difference = float((got - want).abs().max())
    return difference / largest if largest else difference


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_loaded_is_exported_bit_for_bit(layout: str, seen_in: Any, two_depths: Path) -> None:
    weights = seen_in(layout)["weights"]
    source = dict(folder_weights(two_depths))
    assert weights.keys() == source.keys()
    assert [name for name in source if not torch.equal(weights[name].float(), source[name].float())] == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_ranks_of_a_replica_get_what_its_first_rank_made(layout: str, seen_in: Any) -> None:
    first: dict[int, int] = {}
    for rank, (replica, made_by) in enumerate(seen_in(layout)["leaders"]):
        assert made_by == first.setdefault(replica, rank)
    assert len(first) == LAYOUTS[layout].dp


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_planner_knows_what_each_rank_holds(layout: str, seen_in: Any, two_depths: Path) -> None:
    planned = stage_shards(model_sizes(CheckpointFolder.open(two_depths).config), LAYOUTS[layout])
    for stage, dense, expert, bias in seen_in(layout)["parameters"]:
        assert planned[stage] == Shard(dense, expert, bias)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_logits_and_gradients_are_those_of_one_rank(layout: str, mode: str, seen_in: Any, one: dict[str, Any]) -> None:
    seen, want = seen_in(layout)[mode], one["padded"]
    assert len(seen["logits"]) == len(want["logits"])
    assert max(relative(*pair) for pair in zip(seen["logits"], want["logits"], strict=True)) <= LOGITS
    assert worst(seen["gradients"], want["gradients"]) <= (GRADIENTS, "")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("layout", SPLITS)
def test_logprobs_and_metrics_are_those_of_one_rank(layout: str, mode: str, seen_in: Any, one: dict[str, Any]) -> None:
    seen, want = seen_in(layout)[mode], one["padded"]
    for got, expected in zip(seen["logprobs"], want["logprobs"], strict=True):
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)
    assert metrics(seen) == pytest.approx(metrics(want), rel=1e-5)


def test_the_entropy_is_that_of_the_distributions_that_responses_are_drawn_from(one: dict[str, Any]) -> None:
    entropies = []
    for logits_LV, (prompt, response) in zip(one["padded"]["logits"], SHAPES, strict=True):
        for place in range(prompt, prompt + response):
            logprob_V = logits_LV[place - 1].double().log_softmax(-1)
            entropies.append(-float((logprob_V.exp() * logprob_V).sum()))
    assert one["padded"]["update"]["train/entropy"] == pytest.approx(sum(entropies) / len(entropies), rel=1e-6)


def test_the_entropy_bonus_has_the_gradient_that_it_has_through_all_logits(claims: dict[str, Any]) -> None:
    bonus, plain, whole = claims["entropy"]
    assert worst(bonus, whole) <= (GRADIENTS, "")
    assert worst(plain, whole) > (100 * GRADIENTS, "")


def test_padding_is_reported_and_not_counted_as_tokens(one: dict[str, Any]) -> None:
    tokens = sum(map(sum, SHAPES))
    padded, packed = (one[mode]["update"] for mode in MODES)
    assert padded["train/tokens"] == packed["train/tokens"] == tokens
    assert padded["train/padding"] == pytest.approx(1 - tokens / (len(SHAPES) * max(map(sum, SHAPES))))
    assert packed["train/padding"] == 0.0


def test_every_tensor_that_trains_has_a_gradient(one: dict[str, Any]) -> None:
    gradients = one["padded"]["gradients"]
    still = [name for name, gradient in gradients.items() if not gradient.any()]
    # The bias of expert choice is not trained by gradient, and an expert that no token chose gets none.
    assert all("e_score_correction_bias" in name or ".experts." in name for name in still), still
    assert len(still) < len(gradients) / 4


def test_gradients_of_one_document_never_reach_another(claims: dict[str, Any]) -> None:
    assert claims["isolation"]["other"] == 0.0
    assert claims["isolation"]["own"] > 0.0


def test_a_packed_document_has_the_log_probs_that_it_has_alone(claims: dict[str, Any]) -> None:
    # Matrix products of other row counts round otherwise: at log-probs of -8 nats, one unit in the last place is 1e-6.
    assert claims["isolation"]["relative"] <= 1e-6
    assert claims["isolation"]["difference"] <= 3e-6


@pytest.mark.parametrize("cut", CUTS)
def test_losses_do_not_depend_on_how_samples_are_cut_packed_ordered_or_padded(
    cut: str, claims: dict[str, Any], one: dict[str, Any]
) -> None:
    seen, want = claims["cuts"][cut], one["padded"]
    assert metrics(seen) == pytest.approx(metrics(want), rel=1e-5)
    assert worst(seen["gradients"], want["gradients"]) <= (GRADIENTS, "")


@pytest.mark.parametrize("depth", [0, 1])
def test_the_mtp_loss_is_the_cross_entropy_so_many_tokens_ahead(depth: int, claims: dict[str, Any], one: Any) -> None:
    oracle = claims["mtp_oracle"][depth]
    assert oracle["targets"] > 50
    assert oracle["recorded"] == pytest.approx(oracle["loop"], rel=1e-6)
    assert oracle["accepted"] == oracle["top"]
    update = one["padded"]["update"]
    assert update[f"train/mtp_loss_{depth + 1}"] == pytest.approx(oracle["loop"] / oracle["targets"], rel=1e-5)
    assert update[f"train/mtp_acceptance_{depth + 1}"] == pytest.approx(oracle["top"] / oracle["targets"])


def test_heads_with_weights_of_their_own_are_trained_and_exported_each(checkpoints: Path, out: Path) -> None:
    seen = torch.load(out / "separate.pt")
    source = dict(folder_weights(checkpoints / "separate"))
    assert {name.split(".")[2] for name in source if name.startswith("mtp.")} == {"0", "1", "2", "3"}
    assert seen["weights"].keys() == source.keys()
    assert [name for name in source if not torch.equal(seen["weights"][name].float(), source[name].float())] == []
    for depth, oracle in enumerate(seen["mtp_oracle"]):
        assert oracle["recorded"] == pytest.approx(oracle["loop"], rel=1e-6)
        want = pytest.approx(oracle["loop"] / oracle["targets"], rel=1e-5)
        assert seen["update"][f"train/mtp_loss_{depth + 1}"] == want


def test_acceptance_counts_the_tokens_that_the_head_finds_most_likely(claims: dict[str, Any]) -> None:
    found, wanted = claims["accepted"]
    assert found == wanted > 0


def test_ids_of_prompts_and_padding_are_no_mtp_targets(claims: dict[str, Any]) -> None:
    assert claims["targets"] == {"prompt_and_padding": True, "response": False}


def test_the_mtp_loss_moves_the_head_alone(claims: dict[str, Any]) -> None:
    assert claims["trunk"]["trunk"] == 0.0
    assert claims["trunk"]["mtp"] > 0.0
