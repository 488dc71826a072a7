"""Builds the parts of the RL job from its request. Imported after a backend is active."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence

from nemotron_rl.checkpoint.spelling import read_pattern
from nemotron_rl.checkpoint.tokenizer import ChatTokenizer
from nemotron_rl.config.routing import check_expert_bias
from nemotron_rl.data.prompts import Prompt, load_prompts
from nemotron_rl.jobs.engines import engine_of_this_rank, routes_wanted
from nemotron_rl.jobs.requests import TrainRequest
from nemotron_rl.megatron import process
from nemotron_rl.megatron.model import build_model
from nemotron_rl.megatron.trainer import Trainer
from nemotron_rl.reward.registry import reward_function
from nemotron_rl.rollout.collect import Collector
from nemotron_rl.rollout.distant.bridge import Bridge
from nemotron_rl.rollout.distant.client import DistantEngine
from nemotron_rl.rollout.engine import Engine
from nemotron_rl.rollout.reference.engine import ReferenceEngine
from nemotron_rl.sync.checksums import DeviceChecksums, HostChecksums
from nemotron_rl.sync.distant import DistantSync
from nemotron_rl.sync.push import CopyingSync
from nemotron_rl.sync.weight_sync import WeightSync


def training_prompts(request: TrainRequest) -> list[Prompt]:
    """The prompt set."""
    return load_prompts(request.prompts)


def open_engine(request: TrainRequest, bridge: Bridge | None) -> Engine:
    """The rollout engine, without weights: this rank's own, or those at the other end of the bridge.

    Raises:
        SettingsError: when the engine cannot share ranks with a trainer that is split like this.
    """
    if bridge is None:
        return engine_of_this_rank(request)
    kind = request.settings.rollout.engine
    return DistantEngine(bridge, kind, process.dp_rank(), process.dp_size(), once=process.from_replica_leader)


def connect(trainer: Trainer, engine: Engine) -> WeightSync:
    """The way in which this engine gets this trainer's weights."""
    if isinstance(engine, ReferenceEngine):
        return CopyingSync(trainer.weights, engine)
    if isinstance(engine, DistantEngine):
        checksums = HostChecksums if engine.kind == "reference" else DeviceChecksums
        return DistantSync(trainer.weights, engine.bridge, process.from_first_rank, checksums)
    from nemotron_rl.rollout.sglang.engine import SglangEngine
    from nemotron_rl.sync.colocated import ColocatedSync

    if not isinstance(engine, SglangEngine):
        raise TypeError(f"no sync is known for a {type(engine).__name__}")
    return ColocatedSync(trainer, engine)


@contextlib.contextmanager
def engine_asleep(engine: Engine, sync: WeightSync, version: int) -> Iterator[None]:
    """Gives the block the memory of an engine that sleeps for it, which gets its weights again afterwards."""
    if isinstance(engine, ReferenceEngine | DistantEngine):
        yield
        return
    engine.sleep()
    yield
    engine.wake()
    sync.push(version)


def build_trainer(request: TrainRequest) -> Trainer:
    """The trainer with the starting weights, and a copy of them when the KL penalty needs it.

    Raises:
        SettingsError: when the expert bias is to be updated and there is none.
    """
    settings = request.settings
    pattern = read_pattern(json.loads((request.start / "config.json").read_text()))
    check_expert_bias(settings, pattern.main, pattern.mtp)
    model = build_model(
        request.start,
        settings.model,
        settings.parallel,
        mtp=settings.train.mtp,
        moe=settings.train.moe,
        distributed_optimizer=settings.train.optimizer.distributed,
    )
    return Trainer(
        model,
        settings.train.optimizer,
        steps=settings.train.steps * settings.train.updates_per_step,
        micro_batch_size=settings.train.micro_batch_size,
        max_tokens_per_gpu=settings.train.max_tokens_per_gpu,
        mtp=settings.train.mtp,
        temperature=settings.rollout.sampling.temperature,
        entropy_coef=settings.algorithm.entropy_coef,
        report_entropy=settings.algorithm.report_entropy,
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
        routes=routes_wanted(request),
    )
