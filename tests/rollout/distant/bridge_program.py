"""Real trainers and engines on ranks of one job, over gloo; what each rank met goes to OUT/CASE.RANK.json.

python -m tests.rollout.distant.bridge_program CHECKPOINT OUT
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nemotron_rl.config.rollout import SamplingSettings
from nemotron_rl.errors import NemotronRLError
from nemotron_rl.rollout.distant.bridge import Bridge, open_bridge
from nemotron_rl.rollout.distant.client import DistantEngine
from nemotron_rl.rollout.distant.holder import CopyingHolder, Holder
from nemotron_rl.rollout.distant.ordered import OrderedHolder
from nemotron_rl.rollout.distant.places import Places
from nemotron_rl.rollout.distant.serve import EngineServer
from nemotron_rl.rollout.engine import Engine, GenerateRequest, Response
from nemotron_rl.rollout.reference.engine import ReferenceEngine
from nemotron_rl.rollout.reference.load import folder_weights
from nemotron_rl.rollout.sglang.held import held_tensors
from nemotron_rl.rollout.sglang.message import Answer, Order
from nemotron_rl.sync.checksums import Checksums, DeviceChecksums, HostChecksums
from nemotron_rl.sync.distant import DistantSync
from tests.megatron import gang
from tests.rollout.sglang.mimic import mimic
from tests.sync.engine_side import EngineSide

BUCKET_BYTES = 48 << 10
"""Small: many buckets, and tensors that are larger than one."""
BIAS = "backbone.layers.1.mixer.gate.e_score_correction_bias"
NORM = "backbone.norm_f.weight"
SAMPLING = SamplingSettings(max_new_tokens=6)
Weights = Iterator[tuple[str, Tensor]]
Seen = dict[str, Any]


class Watching(ReferenceEngine):
    """Says what it got and when."""

    poisoned: bool | None = None
    batches: Sequence[int] = ()

    def receive(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        if self.poisoned is None:
            self.poisoned = all(self.tensor(name).isnan().all() for name in self.checksums())
        super().receive(weights, version)

    def generate(
        self, requests: Sequence[GenerateRequest], sampling: SamplingSettings, *, routes: bool = False
    ) -> list[Response]:
        self.batches = [*self.batches, len(requests)]
        return super().generate(requests, sampling, routes=routes)


class Hit(Watching):
    """Its memory is hit after a transfer."""

    hit = BIAS

    def receive(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        super().receive(weights, version)
        if version:
            self.tensor(self.hit).view(torch.int32)[2] ^= 1


class Refusing(Watching):
    """Cannot generate."""

    def generate(
        self, requests: Sequence[GenerateRequest], sampling: SamplingSettings, *, routes: bool = False
    ) -> list[Response]:
        raise NemotronRLError("no routes today")


class Fake(EngineSide):
    """SGLang's place on a rank of a group: takes orders, and every rank of the group must be called."""

    def __init__(self, config: Mapping[str, Any], rank: int, ranks: int) -> None:
        super().__init__(mimic(dict(config), rank, ranks))
        self.rank, self.called = rank, list[int]()

    def generate(
        self, requests: Sequence[GenerateRequest], sampling: SamplingSettings, *, routes: bool = False
    ) -> list[Response]:
        self.called.append(len(requests))
        return [Response(request.prompt, (0.0,) * len(request.prompt), "stop") for request in requests]

    def score(self, sequences: Sequence[Sequence[int]]) -> list[Tensor]:
        self.called.append(-len(sequences))
        return [torch.zeros(len(sequence) - 1) for sequence in sequences]


class HitFake(Fake):
    """The second rank's memory is hit after a transfer."""

    hit = "backbone.layers.1.mixer.experts.5.up_proj.weight"

    def order(self, order: Order, buffers: Sequence[Tensor] = (), digests: Tensor | None = None) -> Answer:
        if digests is not None and self.rank:
            held_tensors(self.model)[self.hit].view.view(-1)[1] += 1
        return super().order(order, buffers, digests)


@dataclass(frozen=True)
class Case:
    """Who takes part, and what the trainers do."""

    places: Places
    act: Callable[[Bridge, Path], Seen]
    engine: type[Any] = Watching
    together: bool = False


def exported(checkpoint: Path, factor: float = 1.0) -> Weights:
    for name, tensor in folder_weights(checkpoint):
        yield name, tensor.float() * factor


def on_this_rank[T](make: Callable[[], T]) -> T:
    return make()


def sync_of(
    bridge: Bridge, export: Callable[[], Weights], checksums: Callable[[], Checksums] = HostChecksums
) -> DistantSync:
    return DistantSync(export, bridge, on_this_rank, checksums, BUCKET_BYTES)


def push_twice(bridge: Bridge, checkpoint: Path) -> Seen:
    factor = [1.0]
    sync = sync_of(bridge, lambda: exported(checkpoint, factor[0]))
    proofs = []
    for version in range(2):
        factor[0] = 1.0 + version
        proofs.append(sync.push(version))
    return {"tensors": [p.tensors for p in proofs], "nbytes": [p.nbytes for p in proofs]}


def push_changed(change: Callable[[Weights], Weights], first: int, bridge: Bridge, checkpoint: Path) -> Seen:
    """One sound push when `first` is 1, and one of changed weights."""
    changes = [change]
    sync = sync_of(bridge, lambda: changes[0](exported(checkpoint)))
    for version in range(first + 1):
        changes[0] = change if version == first else unchanged
        sync.push(version)
    return {}


def push_ordered(change: Callable[[Weights], Weights], bridge: Bridge, checkpoint: Path) -> Seen:
    """In the trainer's types, of which bf16 and the fp32 of the expert bias must both arrive."""
    export = lambda: change((n, t.float() if n == BIAS else t) for n, t in folder_weights(checkpoint))  # noqa: E731
    proof = sync_of(bridge, export, DeviceChecksums).push(0)
    return {"tensors": proof.tensors}


def unchanged(weights: Weights) -> Weights:
    return weights


def without_norm(weights: Weights) -> Weights:
    return ((name, tensor) for name, tensor in weights if name != NORM)


def with_extra(weights: Weights) -> Weights:
    yield "backbone.extra", torch.zeros(3)
    yield from weights


def with_norm_twice(weights: Weights) -> Weights:
    for name, tensor in weights:
        yield name, tensor
        if name == NORM:
            yield name, tensor


def with_short_norm(weights: Weights) -> Weights:
    return ((name, tensor[1:] if name == NORM else tensor) for name, tensor in weights)


def breaking_off(weights: Weights) -> Weights:
    for count, (name, tensor) in enumerate(weights):
        if count == 40:
            raise ValueError("the export broke")
        yield name, tensor


def requests(count: int, first_seed: int = 0) -> list[GenerateRequest]:
    return [GenerateRequest((5, 6, 7 + seed % 2), seed) for seed in range(first_seed, first_seed + count)]


def ask(replicas: int, bridge: Bridge, checkpoint: Path) -> Seen:
    """Responses and scores through the bridge; the first trainer has pushed."""
    if bridge.rank == 0:
        sync_of(bridge, lambda: exported(checkpoint)).push(3)
    torch.distributed.barrier()
    engine = DistantEngine(bridge, "reference", bridge.rank, replicas)
    answers = engine.generate(requests(5, 10 * bridge.rank), SAMPLING, routes=True)
    scores = engine.score([(5, 6, 7), (5, 6, 8, 9)])
    routes = [None if one.routes is None else one.routes.tolist() for one in answers]
    return {"tokens": [one.tokens for one in answers], "routes": routes, "scores": [one.tolist() for one in scores]}


def stop(bridge: Bridge, checkpoint: Path) -> Seen:
    raise ValueError("a mistake of the trainer's own")


def ask_group(bridge: Bridge, checkpoint: Path) -> Seen:
    engine = DistantEngine(bridge, "sglang", bridge.rank, 2)
    answers = engine.generate(requests(3), SAMPLING)
    return {"tokens": [one.tokens for one in answers], "scores": len(engine.score([(1, 2), (1, 2, 3)]))}


ONE, TWO = Places(1, 1), Places(1, 2)
CASES = {
    "push": Case(TWO, push_twice),
    "missing": Case(TWO, partial(push_changed, without_norm, 0)),
    "unknown": Case(TWO, partial(push_changed, with_extra, 1)),
    "twice": Case(TWO, partial(push_changed, with_norm_twice, 1)),
    "misshapen": Case(TWO, partial(push_changed, with_short_norm, 0)),
    "breaks-off": Case(TWO, partial(push_changed, breaking_off, 1)),
    "hit": Case(TWO, partial(push_changed, unchanged, 1), Hit),
    "ask": Case(TWO, partial(ask, 1)),
    "shared": Case(Places(2, 1), partial(ask, 2)),
    "together": Case(Places(2, 1), partial(ask, 2), together=True),
    "refused": Case(ONE, partial(ask, 1), Refusing),
    "stops": Case(ONE, stop),
    "ordered": Case(Places(1, 1, 2), partial(push_ordered, unchanged), Fake),
    "ordered-unknown": Case(Places(1, 1, 2), partial(push_ordered, with_extra), Fake),
    "ordered-missing": Case(Places(1, 1, 2), partial(push_ordered, without_norm), Fake),
    "ordered-misshapen": Case(Places(1, 1, 2), partial(push_ordered, with_short_norm), Fake),
    "ordered-hit": Case(Places(1, 1, 2), partial(push_ordered, unchanged), HitFake),
    "group": Case(Places(2, 2, 2), ask_group, Fake, together=True),
}


def main() -> None:
    checkpoint, out = Path(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    for name, case in CASES.items():
        gang.run_gang(case.places.world, partial(rank, checkpoint, out, name, case))


def rank(checkpoint: Path, out: Path, name: str, case: Case) -> None:
    with open_bridge(case.places, "cpu", timedelta(seconds=60)) as bridge:
        store, number, size = bridge.side
        torch.distributed.init_process_group("gloo", store=store, rank=number, world_size=size)
        seen: Seen = {}
        try:
            seen |= case.act(bridge, checkpoint) if bridge.trains else served(case, bridge, checkpoint)
        except Exception as error:
            seen |= {"error": type(error).__name__, "says": str(error)}
    (out / f"{name}.{bridge.rank}.json").write_text(json.dumps(seen))


def served(case: Case, bridge: Bridge, checkpoint: Path) -> Seen:
    engine: Any
    holder: Holder
    config = json.loads((checkpoint / "config.json").read_text())
    if issubclass(case.engine, EngineSide):
        of = case.places.ranks_of(case.places.engine_of(bridge.rank))
        engine = case.engine(config, bridge.rank - of[0], len(of))
        holder = OrderedHolder(engine, bridge.device)
    else:
        engine = case.engine(config, [3])
        holder = CopyingHolder(engine)
    serving: Engine = engine
    EngineServer(serving, holder, bridge, together=case.together).run()
    if isinstance(engine, Fake):
        return {"called": engine.called, "version": engine.version, "wrong": wrong(engine, checkpoint)}
    sent = dict(exported(checkpoint, 2.0)) if case.act is push_twice else {}
    return {
        "poisoned": engine.poisoned,
        "batches": engine.batches,
        "wrong": [name for name, tensor in sent.items() if not torch.equal(engine.tensor(name), tensor)],
    }


def wrong(engine: Fake, checkpoint: Path) -> list[str]:
    """What the engine side holds that is not the checkpoint's."""
    weights = dict(folder_weights(checkpoint))
    names = []
    for held in held_tensors(engine.model).values():
        tensor = weights[held.name]
        for dim, first in enumerate(held.start or ()):
            tensor = tensor.narrow(dim, first, held.view.shape[dim])
        wanted = -tensor.float().exp() if held.transform == "minus_exp" else tensor
        if not torch.equal(held.view, wanted.to(held.view.dtype)):
            names.append(held.key)
    return names


if __name__ == "__main__":
    main()
