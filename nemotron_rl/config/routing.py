"""Whether a run replays the engine's expert choices in the trainer, and can move the expert bias. Pure.

Not rules of the settings: they depend on the model, which only preflight and the job know.
"""

from __future__ import annotations

from nemotron_rl.config.problem import Problem, raise_problems
from nemotron_rl.config.settings import Settings

KEY = "train.moe.routing_replay"
BIAS_KEY = "train.moe.expert_bias"
UNTRIED = {"sglang": "recording with SGLang 0.5.16 has not been run on a GPU yet"}
"""Engines that can record but are not asked to by `auto`, and why."""


def replays_routes(settings: Settings, moe_layers: int) -> bool:
    """Whether the engine is asked for the experts of each token; the model has so many MoE layers in its trunk.

    Raises:
        SettingsError: when the settings demand it and it cannot be.
    """
    wanted = settings.train.moe.routing_replay
    if wanted == "on" and not moe_layers:
        message = "the model has no mixture-of-experts layer whose routes could be replayed; use auto or off"
        raise_problems([Problem(KEY, message, wanted)])
    return wanted == "on" or (wanted == "auto" and not why_off(settings, moe_layers))


def check_expert_bias(settings: Settings, trunk: str, head: str) -> None:
    """Refuse to update the expert bias of a model that trains no router; block letters of its trunk and MTP head.

    Raises:
        SettingsError: the settings ask for it.
    """
    trained = trunk + (head if settings.train.mtp.enabled else "")
    if settings.train.moe.expert_bias == "updated" and "E" not in trained:
        message = "the model has no mixture-of-experts layer whose bias could be updated; use frozen"
        if "E" in head:
            message += ", or train.mtp.enabled = true, for its MTP head has one"
        raise_problems([Problem(BIAS_KEY, message, "updated")])


def replay_text(settings: Settings, moe_layers: int | None) -> str:
    """Whether routes will be replayed, and why not, in words; None: it is not known yet how many layers could be."""
    wanted = settings.train.moe.routing_replay
    if wanted != "auto":
        return f"{wanted}, as {KEY} says"
    reason = why_off(settings, 1 if moe_layers is None else moe_layers)
    if reason:
        return f"off: {reason}" + (f"; {KEY} = on asks for it all the same" if moe_layers != 0 else "")
    return "on" if moe_layers is not None else "on if the model has a mixture-of-experts layer"


def why_off(settings: Settings, moe_layers: int) -> str:
    """Why `auto` does not replay; empty when it does."""
    if not moe_layers:
        return "the model has no mixture-of-experts layer"
    return UNTRIED.get(settings.rollout.engine, "")
