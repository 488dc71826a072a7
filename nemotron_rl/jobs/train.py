"""The RL job, under torchrun: rollout, update, sync and proof, step by step."""

from __future__ import annotations

from nemotron_rl.jobs.entry import run
from nemotron_rl.jobs.requests import TrainRequest
from nemotron_rl.megatron import backend


def train(request: TrainRequest) -> None:
    """Train the policy from the start or the chosen checkpoint, prove every sync, and export the result."""
    settings = request.settings
    backend.activate(settings.model.backend)
    from nemotron_rl.data.sampler import PromptSampler
    from nemotron_rl.jobs.components import build_collector, build_trainer, open_engine, training_prompts
    from nemotron_rl.jobs.details import Recorder
    from nemotron_rl.jobs.experience import experience, sample_metrics, sync_metrics
    from nemotron_rl.jobs.measure import MetricsLog, Phases, peak_memory_gib
    from nemotron_rl.jobs.results import empty_folder
    from nemotron_rl.megatron import process
    from nemotron_rl.megatron.checkpointing.saver import Saver
    from nemotron_rl.megatron.export import export_checkpoint
    from nemotron_rl.rl.objective import policy_objective
    from nemotron_rl.sync.push import push

    with (
        process.model_parallel(settings.model, settings.parallel, settings.seed),
        open_engine(request) as engine,
        Saver(request.run_dir, settings, request.inputs, request.metrics) as saver,
    ):
        prompts = training_prompts(request)
        trainer = build_trainer(request)
        collector = build_collector(request, engine, prompts)
        objective = policy_objective(settings.algorithm)
        recorder = Recorder(request.run_dir, settings.train.dump_details)
        start = saver.resume(trainer.state)
        sampler = PromptSampler(
            len(prompts), settings.train.prompts_per_step, settings.data.shuffle_seed, start.sampler_position
        )
        push(trainer.weights, engine, version=start.step)
        with MetricsLog(request.metrics, process.is_first_rank()) as log:
            for step in range(start.step, settings.train.steps):
                phases = Phases()
                with phases("rollout"):
                    mine = process.share_of_dp(sampler.next_batch())
                    samples = process.from_replica_leader(lambda: collector.collect(mine, step))  # noqa: B023
                with phases("train"):
                    engine.sleep()
                    batch = experience(samples, trainer, settings, collector.pad_token)
                    update = trainer.update(batch, objective)
                    engine.wake()
                with phases("sync"):
                    proof = push(trainer.weights, engine, version=step + 1)
                recorder.keep(step, samples, batch, update, trainer.weights)
                measured = sample_metrics(samples, batch) | update.metrics("train") | sync_metrics(proof)
                costs = phases.metrics() | saver.metrics() | {"memory/peak_rss_gib": peak_memory_gib()}
                log.write(step, measured | costs)
                saver.after(step + 1, trainer.state, sampler.position)
        empty_folder(request.out)
        export_checkpoint(trainer.weights(), request.start, request.out)


if __name__ == "__main__":
    run(TrainRequest, train)
