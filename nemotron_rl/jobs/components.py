"""Builds the parts of the RL job from its request. Imported after a backend is active."""

from __future__ import annotations

from collections.abc import Sequence

from nemotron_rl.checkpoint.tokenizer import ChatTokenizer
from nemotron_rl.data.prompts import Prompt, load_prompts
from nemotron_rl.errors import InputError
from nemotron_rl.jobs.requests import TrainRequest
from nemotron_rl.megatron.model import build_model
from nemotron_rl.megatron.trainer import Trainer
from nemotron_rl.reward.registry import reward_function
from nemotron_rl.rollout.collect import Collector
from nemotron_rl.rollout.engine import Engine
from nemotron_rl.rollout.reference.engine import ReferenceEngine


def training_prompts(request: TrainRequest) -> list[Prompt]:
    """The prompt set."""
    return load_prompts(request.prompts)


def open_engine(request: TrainRequest) -> Engine:
    """The rollout engine, without weights.

    Raises:
        InputError: for an engine that this version does not have.
    """
    if request.settings.rollout.engine != "reference":
        raise InputError(f"rollout.engine {request.settings.rollout.engine!r} is not there yet; use 'reference'")
    return ReferenceEngine.from_folder(request.start, ChatTokenizer.from_folder(request.start).eos_token_ids)


def build_trainer(request: TrainRequest) -> Trainer:
    """The trainer with the starting weights, and a copy of them when the KL penalty needs it."""
    settings = request.settings
    model = build_model(
        request.start,
        settings.model,
        settings.parallel,
        mtp=settings.train.mtp,
        distributed_optimizer=settings.train.optimizer.distributed,
    )
    return Trainer(
        model,
        settings.train.optimizer,
        steps=settings.train.steps,
        micro_batch_size=settings.train.micro_batch_size,
        mtp=settings.train.mtp,
        temperature=settings.rollout.sampling.temperature,
        keep_reference=settings.algorithm.kl_coef > 0,
        reference_on_host=settings.algorithm.reference_weights == "host",
    )


def build_collector(request: TrainRequest, engine: Engine, prompts: Sequence[Prompt]) -> Collector:
    """Generates and scores training samples."""
    settings = request.settings
    return Collector(
        engine,
        ChatTokenizer.from_folder(request.start),
        prompts,
        reward_function(settings.reward.name),
        samples_per_prompt=settings.rollout.samples_per_prompt,
        sampling=settings.rollout.sampling,
        seed=settings.seed,
    )
