"""The RL job, under torchrun: rollout, update, sync and proof, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nemotron_rl.jobs.entry import run
from nemotron_rl.jobs.requests import TrainRequest
from nemotron_rl.megatron import backend

if TYPE_CHECKING:
    from nemotron_rl.rollout.distant.bridge import Bridge


def train(request: TrainRequest) -> None:
    """Train the policy from the start or the chosen checkpoint, prove every sync, and export the result."""
    if request.settings.rollout.placement == "shared":
        train_on_this_rank(request)
        return
    from nemotron_rl.jobs.engines import bridge_of, serve_trainers

    with bridge_of(request) as bridge:
        if bridge.trains:
            train_on_this_rank(request, bridge)
        else:
            serve_trainers(request, bridge)


def train_on_this_rank(request: TrainRequest, bridge: Bridge | None = None) -> None:
    """A trainer's part; its engine is on this rank, or at the other end of the bridge."""
    settings = request.settings
    backend.activate(settings.model.backend)
    from nemotron_rl.jobs.components import open_engine
    from nemotron_rl.jobs.loop import TrainingLoop
    from nemotron_rl.megatron import process
    from nemotron_rl.megatron.checkpointing.saver import Saver

    with (
        process.model_parallel(settings.model, settings.parallel, settings.seed, bridge.side if bridge else None),
        open_engine(request, bridge) as engine,
        Saver(request.run_dir, settings, request.inputs, request.metrics) as saver,
    ):
        loop = TrainingLoop(request, engine, saver)
        loop.run()
        loop.export()


if __name__ == "__main__":
    run(TrainRequest, train)
