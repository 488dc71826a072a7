"""The rollout engine of a training job: on the trainer's ranks, or on ranks of its own that serve it.

Imports no megatron, which a rollout rank has no use for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist

from nemotron_rl.checkpoint.spelling import read_pattern
from nemotron_rl.checkpoint.tokenizer import ChatTokenizer
from nemotron_rl.config.colocation import check_colocation
from nemotron_rl.config.routing import replays_routes
from nemotron_rl.jobs.requests import TrainRequest
from nemotron_rl.rollout.distant.bridge import Bridge, open_bridge
from nemotron_rl.rollout.distant.holder import CopyingHolder
from nemotron_rl.rollout.distant.places import Places
from nemotron_rl.rollout.distant.serve import EngineServer
from nemotron_rl.rollout.engine import Engine
from nemotron_rl.rollout.reference.engine import ReferenceEngine


def routes_wanted(request: TrainRequest) -> bool:
    """Whether the engine is asked for each token's experts; SettingsError when it must be and cannot."""
    config = json.loads((request.start / "config.json").read_text())
    return replays_routes(request.settings, read_pattern(config).main.count("E"))


def engine_of_this_rank(request: TrainRequest) -> Engine:
    """An engine without weights: this rank's own, or the one that it shares with its group.

    Raises:
        SettingsError: when the engine cannot get the weights of a trainer that is split like this.
    """
    stop_tokens = ChatTokenizer.from_folder(request.start).eos_token_ids
    rollout = request.settings.rollout
    if rollout.engine == "reference":
        return ReferenceEngine.from_folder(request.start, stop_tokens)
    from nemotron_rl.rollout.sglang.engine import SglangEngine

    check_colocation(request.settings)
    return SglangEngine.beside_trainer(
        request.start, stop_tokens, rollout.sglang, seed=request.settings.seed, routes=routes_wanted(request)
    )


def bridge_of(request: TrainRequest) -> AbstractContextManager[Bridge]:
    """This rank's end of the bridge between the job's trainers and its rollout ranks."""
    settings = request.settings
    # Nothing in a job waits longer than the job may run.
    timeout = timedelta(minutes=settings.cluster.time_limit_minutes)
    return open_bridge(Places.of(settings), settings.model.backend, timeout)


def serve_trainers(request: TrainRequest, bridge: Bridge) -> None:
    """The whole life of a rollout rank: its engine, until the trainers have left."""
    torch.set_num_threads(request.settings.model.threads)
    with _rollout_group(bridge), engine_of_this_rank(request) as engine:
        if isinstance(engine, ReferenceEngine):
            # In turn: rounding depends on what is in a batch, and each replica's is that of an engine of its own.
            EngineServer(engine, CopyingHolder(engine), bridge, together=False).run()
            return
        from nemotron_rl.rollout.distant.ordered import OrderedHolder
        from nemotron_rl.rollout.sglang.engine import SglangEngine

        if not isinstance(engine, SglangEngine):
            raise TypeError(f"no way to give weights to a {type(engine).__name__} on other ranks is known")
        EngineServer(engine, OrderedHolder(engine, bridge.device), bridge, together=True).run()


@contextmanager
def _rollout_group(bridge: Bridge) -> Iterator[None]:
    """The default group of the rollout ranks, in which the ranks of an engine find each other."""
    store, rank, size = bridge.side
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    try:
        yield
    finally:
        dist.destroy_process_group()
