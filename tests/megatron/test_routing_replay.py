"""Routes of the engine in the trainer: recorded rightly, replayed exactly, in every layout, and cleanly off."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.megatron.parity_program import MODES, SHAPES
from tests.megatron.routing_program import SPLITS
from tests.megatron.test_parity import GRADIENTS, metrics, relative, worst
from tests.oracles.routed_model import logprobs

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def seen_in(six_layers: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Any]]:
    """What was seen in a layout."""
    folder = tmp_path_factory.mktemp("routing")
    argv = [sys.executable, "-m", "tests.megatron.routing_program", str(six_layers), str(folder), "one", *SPLITS]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    return cache(lambda layout: torch.load(folder / f"{layout}.pt", weights_only=False))


@pytest.fixture(scope="module")
def one(seen_in: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    return seen_in("one")


def test_the_engine_records_what_megatrons_routers_choose(one: dict[str, Any]) -> None:
    for row, sequence in enumerate(one["sequences"]):
        routes_TMK = sequence.routes.long()
        assert len(routes_TMK) == len(sequence.prompt) + len(sequence.response) - 1
        for layer, map_BLE in enumerate(one["megatron_routes"]):
            chosen_TE = torch.zeros_like(map_BLE[row, : len(routes_TMK)]).scatter(1, routes_TMK[:, layer], True)
            assert torch.equal(chosen_TE, map_BLE[row, : len(routes_TMK)])


def test_the_engine_records_what_a_slow_model_chooses(one: dict[str, Any]) -> None:
    for sequence in one["sequences"]:
        tokens = [*sequence.prompt, *sequence.response]
        _, slow_LMK = logprobs(tokens, one["weights"], one["config"], None)
        assert torch.equal(slow_LMK[:-1].sort(-1).values, sequence.routes.long().sort(-1).values)


def test_replaying_the_models_own_choice_changes_no_bit(one: dict[str, Any]) -> None:
    assert one["equal_routes"]
    assert one["changed"] == 0.0


def test_without_routes_nothing_is_reported(one: dict[str, Any]) -> None:
    assert one["without"] is False


def test_altered_routes_give_the_log_probs_of_masked_dense_experts(one: dict[str, Any]) -> None:
    batch = one["altered"]
    assert one["difference"] > 1e-2
    for row, (prompt, response) in enumerate(SHAPES):
        tokens = batch.tokens_BL[row, : prompt + response].tolist()
        slow, _ = logprobs(tokens, one["weights"], one["config"], batch.routes_BLMK[row, : len(tokens)])
        got = one["altered_logprobs"][row, prompt : len(tokens)]
        torch.testing.assert_close(got, slow[prompt - 1 :], atol=1e-5, rtol=0)


def test_routers_get_the_gradient_of_masked_dense_experts(one: dict[str, Any]) -> None:
    batch = one["altered"]
    names = [name for name in one["weights"] if name.startswith("backbone") and name.endswith("gate.weight")]
    weights = one["weights"] | {name: one["weights"][name].clone().requires_grad_() for name in names}
    total = torch.zeros(())
    for row, (prompt, response) in enumerate(SHAPES):
        tokens = batch.tokens_BL[row, : prompt + response].tolist()
        slow, _ = logprobs(tokens, weights, one["config"], batch.routes_BLMK[row, : len(tokens)])
        total = total - (slow[prompt - 1 :] * batch.advantage_BL[row, prompt : len(tokens)]).sum()
    (total / batch.mask_BL.sum()).backward()
    assert names
    for name in names:
        want: Tensor = weights[name].grad
        assert float(want.abs().max()) > 0
        assert relative(one["padded"]["gradients"][name], want) <= 1e-4


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("layout", ["one", *SPLITS])
def test_a_layout_replays_as_one_rank_does(layout: str, mode: str, seen_in: Any, one: dict[str, Any]) -> None:
    seen, want = seen_in(layout)[mode], one["padded"]
    for got, expected in zip(seen["logprobs"], want["logprobs"], strict=True):
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)
    assert metrics(seen) == pytest.approx(metrics(want), rel=1e-5)
    assert 0.5 < seen["update"]["routing/changed"] <= 1.0
    trained = {n: g for n, g in seen["gradients"].items() if not n.endswith("e_score_correction_bias")}
    assert worst(trained, {name: want["gradients"][name] for name in trained}) <= (GRADIENTS, "")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("layout", ["one", *SPLITS])
def test_the_load_that_moves_the_bias_is_of_tokens_and_not_of_padding(
    layout: str, mode: str, seen_in: Any, one: dict[str, Any]
) -> None:
    batch = one["altered"]
    seen, start = seen_in(layout)[mode]["biases"], one["weights"]
    trunk = [name for name in sorted(seen) if name.startswith("backbone")]
    assert len(trunk) == batch.routes_BLMK.shape[2]
    for layer, name in enumerate(trunk):
        load_E = torch.zeros(one["config"]["n_routed_experts"])
        for row, shape in enumerate(SHAPES):
            recorded = batch.routes_BLMK[row, : sum(shape), layer].long()
            tokens = batch.tokens_BL[row, : sum(shape)].tolist()
            _, used_LMK = logprobs(tokens, start, one["config"], batch.routes_BLMK[row, : sum(shape)])
            assert torch.equal(used_LMK[:-1, layer], recorded[:-1])  # the last token routes itself
            load_E += torch.bincount(used_LMK[:, layer].flatten(), minlength=len(load_E))
        want_E = start[name] + 0.125 * torch.sign(load_E.mean() - load_E)
        assert seen[name].dtype == torch.float32
        assert torch.equal(seen[name], want_E)


@pytest.mark.parametrize("way", ["full", "moe"])
def test_recomputation_replays_the_same_routes(way: str, one: dict[str, Any]) -> None:
    seen, want = one["recompute"][way], one["recompute"]["none"]
    assert metrics(seen) == pytest.approx(metrics(want), rel=1e-6)
    assert worst(seen["gradients"], want["gradients"]) <= (GRADIENTS, "")


def test_the_order_in_which_samples_are_packed_is_nothing(one: dict[str, Any]) -> None:
    forwards, backwards = one["orders"]
    torch.testing.assert_close(forwards, backwards.flip(0), atol=3e-6, rtol=0)
    torch.testing.assert_close(forwards, one["altered_logprobs"], atol=1e-5, rtol=0)


def test_the_reference_model_routes_for_itself(one: dict[str, Any]) -> None:
    assert one["reference"]


def test_a_frozen_bias_is_left_bit_for_bit(one: dict[str, Any]) -> None:
    assert one["frozen"] == []
    assert one["frozen_metrics"] == []


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_an_updated_bias_moves_in_fp32(dtype: str, one: dict[str, Any]) -> None:
    before, after = one["updated"][dtype]["before"], one["updated"][dtype]["after"]
    moved = 0
    for name, start in before.items():
        assert start.dtype == after[name].dtype == torch.float32
        assert torch.equal(start, one["weights"][name])  # bf16 models too start from the checkpoint's own bits
        step = after[name] - start
        moved += int((step != 0).sum())
        assert float(step.abs().max()) <= 1.1e-3
    assert moved > len(before)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_how_far_the_biases_moved_is_reported(dtype: str, one: dict[str, Any]) -> None:
    before, after, update = (one["updated"][dtype][key] for key in ("before", "after", "update"))
    moved_N = torch.cat([(after[name].double() - start.double()).abs().flatten() for name, start in before.items()])
    assert update["routing/bias_change_max"] == float(moved_N.max()) > 0
    assert update["routing/bias_change_mean"] == pytest.approx(float(moved_N.mean()), rel=1e-12)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("layout", ["one", *SPLITS])
def test_every_layout_reports_the_moves_of_all_layers(
    layout: str, mode: str, seen_in: Any, one: dict[str, Any]
) -> None:
    update = seen_in(layout)[mode]["update"]
    assert update["routing/bias_change_max"] == pytest.approx(0.125, rel=1e-3)
    want = one["padded"]["update"]["routing/bias_change_mean"]
    assert update["routing/bias_change_mean"] == pytest.approx(want, rel=1e-6)


def test_an_updated_bias_is_synced_and_proved(one: dict[str, Any]) -> None:
    after = one["updated"]["fp32"]["after"]
    assert all(torch.equal(one["updated"]["engine"][name], value) for name, value in after.items())
