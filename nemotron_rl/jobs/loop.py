"""The training loop on one rank. Every method is a collective call of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from nemotron_rl.data.sampler import PromptSampler
from nemotron_rl.jobs.components import build_collector, build_trainer, connect, engine_asleep, training_prompts
from nemotron_rl.jobs.details import Recorder
from nemotron_rl.jobs.drawing import Drawn, draw
from nemotron_rl.jobs.experience import batch_metrics, engine_metrics, experience, sample_metrics, sync_metrics
from nemotron_rl.jobs.measure import MetricsLog, Phases, peak_metrics
from nemotron_rl.jobs.requests import TrainRequest
from nemotron_rl.jobs.results import empty_folder
from nemotron_rl.jobs.updating import update_policy
from nemotron_rl.megatron import process
from nemotron_rl.megatron.checkpointing.saver import Saver
from nemotron_rl.megatron.export import export_checkpoint
from nemotron_rl.megatron.update import Update
from nemotron_rl.report.card import card_facts, measured_reward
from nemotron_rl.report.metrics import read_metrics
from nemotron_rl.rl.batch import Batch
from nemotron_rl.rl.objective import policy_objective
from nemotron_rl.rollout.collect import Sample
from nemotron_rl.rollout.engine import Engine


class TrainingLoop:
    """Trainer, engine and what goes between them, from the start or from the checkpoint that the saver chose."""

    def __init__(self, request: TrainRequest, engine: Engine, saver: Saver) -> None:
        self._request, self._engine, self._saver = request, engine, saver
        self._settings = settings = request.settings
        prompts = training_prompts(request)
        self._trainer = build_trainer(request)
        self._collector = build_collector(request, engine, prompts)
        self._objective = policy_objective(settings.algorithm)
        self._recorder = Recorder(request.run_dir, settings.train.dump_details)
        start = saver.resume(self._trainer.state)
        self._first_step = start.step
        self._sampler = PromptSampler(
            len(prompts), settings.train.prompts_per_step, settings.data.shuffle_seed, start.sampler_position
        )
        self._trainer.sleep()
        self._sync = connect(self._trainer, engine)

    def run(self) -> None:
        """All steps that are left, each with its metrics, and saves when they are due."""
        self._sync.push(version=self._first_step)
        with MetricsLog(self._request.metrics, process.is_first_rank()) as log:
            for step in range(self._first_step, self._settings.train.steps):
                log.write(step, self._step(step))
                room = partial(engine_asleep, self._engine, self._sync, step + 1)
                self._saver.after(step + 1, self._trainer.state, self._sampler.position, room)

    def export(self) -> None:
        """Write the trained checkpoint with its card."""
        request = self._request
        card = None
        if process.is_first_rank():  # which writes the checkpoint, and the metrics
            card = card_facts(self._settings, request.start, measured_reward(read_metrics(request.metrics)))
        process.from_first_rank(lambda: empty_folder(request.out))
        export_checkpoint(self._trainer.weights(), request.start, request.out, card=card)

    def _step(self, step: int) -> dict[str, float]:
        phases = Phases()
        with phases("rollout"):
            drawn, agreed = self._rollout(step)
        with phases("train"):
            batch, update = self._update(drawn.samples)
        with phases("sync"):
            proof = self._sync.push(version=step + 1)
        self._recorder.keep(step, drawn.samples, batch, update, self._trainer.weights)
        measured = sample_metrics(drawn.everything) | drawn.metrics | batch_metrics(batch) | agreed
        measured |= update.metrics("train") | sync_metrics(proof)
        measured |= process.largest_of_ranks(phases.memory() | peak_metrics())
        return measured | phases.metrics() | self._saver.metrics()

    def _rollout(self, step: int) -> tuple[Drawn, dict[str, float]]:
        """This replica's samples, and how well the engine agrees with itself if that is asked for."""

        def collect(indices: Sequence[int]) -> list[Sample]:
            return process.from_replica_leader(lambda: self._collector.collect(indices, step))

        drawn = draw(
            self._sampler, collect, self._settings.algorithm.redraw_rounds, self._settings.train.updates_per_rollout
        )
        return drawn, engine_metrics(self._engine, drawn.samples) if self._settings.rollout.check_prefill else {}

    def _update(self, samples: Sequence[Sample]) -> tuple[Batch, Update]:
        """The step's updates, for which the engine gives its memory to the trainer."""
        self._engine.sleep()
        self._trainer.wake()
        batch = experience(samples, self._trainer, self._settings, self._collector.pad_token)
        update = update_policy(self._trainer, batch, self._objective, self._settings.train)
        self._trainer.sleep()
        self._engine.wake()
        return batch, update
