"""The RL job, under torchrun: rollout, update, sync and proof, step by step."""

from __future__ import annotations

from nemotron_rl.jobs.entry import run
from nemotron_rl.jobs.requests import TrainRequest
from nemotron_rl.megatron import backend


def train(request: TrainRequest) -> None:
    """Train the policy from the start or the chosen checkpoint, prove every sync, and export the result."""
    settings = request.settings
    backend.activate(settings.model.backend)
    from nemotron_rl.jobs.components import open_engine
    from nemotron_rl.jobs.loop import TrainingLoop
    from nemotron_rl.megatron import process
    from nemotron_rl.megatron.checkpointing.saver import Saver

    with (
        process.model_parallel(settings.model, settings.parallel, settings.seed),
        open_engine(request) as engine,
        Saver(request.run_dir, settings, request.inputs, request.metrics) as saver,
    ):
        loop = TrainingLoop(request, engine, saver)
        loop.run()
        loop.export()


if __name__ == "__main__":
    run(TrainRequest, train)
