"""When routes are replayed."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from nemotron_rl.config.load import load_settings
from nemotron_rl.config.routing import check_expert_bias, replay_text, replays_routes, why_off
from nemotron_rl.errors import SettingsError

CUDA = {"model.backend": "cuda", "model.dtype": "bf16", "rollout.engine": "sglang"}


@pytest.mark.parametrize(
    ("setting", "engine", "moe_layers", "wanted"),
    [
        ("off", {}, 2, False),
        ("auto", {}, 2, True),
        ("auto", {}, 0, False),
        ("on", {}, 2, True),
        ("auto", CUDA, 2, False),
        ("on", CUDA, 2, True),
        ("off", CUDA, 2, False),
    ],
)
def test_it_is_on_where_the_engine_is_known_to_record_or_it_is_demanded(
    setting: str, engine: dict[str, str], moe_layers: int, wanted: bool
) -> None:
    settings = load_settings("tiny", overrides=engine | {"train.moe.routing_replay": setting}, environ={})
    assert replays_routes(settings, moe_layers) is wanted


def test_a_demand_that_cannot_be_met_is_refused() -> None:
    settings = load_settings("tiny", overrides={"train.moe.routing_replay": "on"}, environ={})
    with pytest.raises(SettingsError, match="no mixture-of-experts layer whose routes could be replayed"):
        replays_routes(settings, 0)


@pytest.mark.parametrize(
    ("bias", "trunk", "head", "trains_head", "says"),
    [
        ("updated", "ME*E", "", True, ""),
        ("updated", "ME*E", "*E", False, ""),
        ("updated", "M*-", "*E", True, ""),
        ("updated", "M*-", "*E", False, r"use frozen, or train\.mtp\.enabled = true"),
        ("updated", "M*-", "", True, "no mixture-of-experts layer whose bias could be updated; use frozen$"),
        ("frozen", "M*-", "", True, ""),
    ],
)
def test_a_bias_that_is_nowhere_is_not_updated(bias: str, trunk: str, head: str, trains_head: bool, says: str) -> None:
    changes = {"train.moe.expert_bias": bias, "train.mtp.enabled": trains_head}
    settings = load_settings("tiny", overrides=changes, environ={})
    with pytest.raises(SettingsError, match=says) if says else nullcontext():
        check_expert_bias(settings, trunk, head)


def test_why_not_is_said() -> None:
    assert why_off(load_settings("tiny", environ={}), 2) == ""
    assert "not been run on a GPU" in why_off(load_settings("tiny", overrides=CUDA, environ={}), 2)


@pytest.mark.parametrize(
    ("setting", "engine", "moe_layers", "text"),
    [
        ("auto", {}, 2, "on"),
        ("auto", {}, None, "on if the model has a mixture-of-experts layer"),
        ("auto", {}, 0, "off: the model has no mixture-of-experts layer"),
        ("off", CUDA, 2, "off, as train.moe.routing_replay says"),
        ("on", CUDA, None, "on, as train.moe.routing_replay says"),
        *(
            (
                "auto",
                CUDA,
                layers,
                "off: recording with SGLang 0.5.16 has not been run on a GPU yet; "
                "train.moe.routing_replay = on asks for it all the same",
            )
            for layers in (2, None)
        ),
    ],
)
def test_what_will_be_is_said_in_words(setting: str, engine: dict[str, str], moe_layers: int | None, text: str) -> None:
    settings = load_settings("tiny", overrides=engine | {"train.moe.routing_replay": setting}, environ={})
    assert replay_text(settings, moe_layers) == text


def test_the_settings_can_be_written_without_quotes(tmp_path) -> None:
    (tmp_path / "run.yaml").write_text("train: {moe: {routing_replay: off, expert_bias: updated}}\n")
    settings = load_settings("tiny", config_file=tmp_path / "run.yaml", environ={})
    assert (settings.train.moe.routing_replay, settings.train.moe.expert_bias) == ("off", "updated")
