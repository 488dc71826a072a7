"""The replay job, under torchrun: the updates of kept steps again, and whether they do the same, bit for bit."""

from __future__ import annotations

from nemotron_rl.jobs.entry import run
from nemotron_rl.jobs.replayed import RESULT_FILE, Replayed, Replays
from nemotron_rl.jobs.requests import ReplayRequest
from nemotron_rl.megatron import backend


def replay(request: ReplayRequest) -> None:
    """Write `replay.json`: every step from the nearest checkpoint before the wanted one to that one."""
    settings = request.train.settings
    backend.activate(settings.model.backend)
    from nemotron_rl.jobs.components import build_trainer
    from nemotron_rl.jobs.details import Outcome, read_details
    from nemotron_rl.jobs.updating import update_policy
    from nemotron_rl.megatron import process
    from nemotron_rl.megatron.checkpointing.choice import before
    from nemotron_rl.megatron.checkpointing.restore import restore
    from nemotron_rl.rl.objective import policy_objective

    with process.model_parallel(settings.model, settings.parallel, settings.seed):
        choice = process.from_first_rank(lambda: before(request.train.run_dir, request.step, settings))
        first = choice.record.step if choice else 0
        steps = range(first, request.step + 1)
        kept = process.agreed(lambda: [read_details(request.train.run_dir, step) for step in steps])
        trainer = build_trainer(request.train)
        if choice is not None:
            restore(choice, trainer.state, settings)
        objective = policy_objective(settings.algorithm)
        replayed = []
        for step, (details, batch) in zip(steps, kept, strict=True):
            outcome = Outcome.of(update_policy(trainer, batch, objective, settings.train), trainer.weights)
            replayed.append(Replayed.of(step, details.outcome, outcome))
        if process.is_first_rank():
            found = Replays(checkpoint=first, steps=tuple(replayed))
            (request.out / RESULT_FILE).write_text(found.model_dump_json(indent=1))


if __name__ == "__main__":
    run(ReplayRequest, replay)
