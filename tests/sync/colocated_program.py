"""Real trainers over gloo, split in many ways, push to engine sides of other splits; what was seen goes to OUT.json.

python -m tests.sync.colocated_program CHECKPOINT OUT.json
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nemotron_rl.config.model import ModelSettings, ParallelSettings
from nemotron_rl.config.training import MtpSettings, OptimizerSettings
from nemotron_rl.megatron import backend
from tests.megatron import gang

CASES = {
    "dp2, engines of 1": (ParallelSettings(world_size=2), 1),
    "dp2, engine of 2": (ParallelSettings(world_size=2), 2),
    "ep2, engines of 1": (ParallelSettings(world_size=2, ep=2), 1),
    "ep2, engine of 2": (ParallelSettings(world_size=2, ep=2), 2),
    "tp2, engines of 1": (ParallelSettings(world_size=2, tp=2), 1),
    "tp2-etp2, engine of 2": (ParallelSettings(world_size=2, tp=2, etp=2), 2),
    "pp2, engine of 2": (ParallelSettings(world_size=2, pp=2), 2),
    "cp2, engine of 2": (ParallelSettings(world_size=2, cp=2), 2),
    "tp2-ep2, engine of 4": (ParallelSettings(world_size=4, tp=2, ep=2), 4),
    "tp2-pp2, engines of 2": (ParallelSettings(world_size=4, tp=2, pp=2), 2),
    "ep2-pp2, engines of 1": (ParallelSettings(world_size=4, ep=2, pp=2), 1),
}
"""Trainer's split and ranks per engine."""
ROUND_BYTES = 100_000
"""Small, so that there are many rounds and tensors that are cut."""


def main() -> None:
    checkpoint, out = Path(sys.argv[1]), Path(sys.argv[2])
    backend.activate("cpu")
    import nemotron_rl.megatron.trainer  # noqa: F401  once, in the parent

    for name, (parallel, engine_ranks) in CASES.items():
        gang.run_gang(parallel.world_size, partial(rank, checkpoint, out, name, parallel, engine_ranks))


def rank(checkpoint: Path, out: Path, name: str, parallel: ParallelSettings, engine_ranks: int) -> None:
    from nemotron_rl.megatron import process
    from nemotron_rl.sync.peers import World

    with process.model_parallel(ModelSettings(), parallel, seed=1):
        seen = World().gather(observe(checkpoint, parallel, engine_ranks))
        if process.is_first_rank():
            (out / f"{name}.json").write_text(json.dumps(seen))


def observe(checkpoint: Path, parallel: ParallelSettings, engine_ranks: int) -> dict[str, Any]:
    from nemotron_rl.megatron import process
    from nemotron_rl.megatron.model import build_model
    from nemotron_rl.megatron.trainer import Trainer
    from nemotron_rl.sync.colocated import ColocatedSync
    from tests.rollout.sglang.mimic import mimic
    from tests.sync.engine_side import EngineSide

    mtp = MtpSettings()
    model = build_model(checkpoint, ModelSettings(), parallel, mtp=mtp)
    trainer = Trainer(model, OptimizerSettings(), steps=10, micro_batch_size=1, mtp=mtp)
    config = json.loads((checkpoint / "config.json").read_text())
    engine = EngineSide(mimic(config, process.rank() % engine_ranks, engine_ranks))
    sync = ColocatedSync(trainer, engine, round_bytes=ROUND_BYTES)
    seen: dict[str, Any] = {"wrong": [], "version": []}
    for version in range(3):
        proof = sync.push(version)
        seen["wrong"] += wrong(dict(trainer.weights()), engine)
        seen["version"].append(engine.version)
        for parameter in model.unwrapped()[0].parameters():
            with torch.no_grad():
                parameter.mul_(1.25).add_(0.001)
    seen |= {"tensors": proof.tensors, "bytes": proof.nbytes}
    assert sync.plan is not None  # made by the first push
    seen["rounds"] = len(sync.plan.rounds)
    seen["from others"] = sum(not piece.local for piece in sync.plan.arriving)
    seen["said"] = fault(trainer, engine, process.rank() == parallel.world_size - 1)
    return seen


def wrong(exported: dict[str, Tensor], engine: Any) -> list[str]:
    """What the engine holds that is not the trainer's export, rounded as it is held."""
    from nemotron_rl.rollout.sglang.held import as_held, box, held_tensors

    return [
        key
        for key, held in held_tensors(engine.model).items()
        if not torch.equal(
            held.view,
            as_held(box(exported[held.name], held.start, held.view.shape), held.view.dtype, held.transform),
        )
    ]


def fault(trainer: Any, engine: Any, mine: bool) -> str:
    """What a push says on this rank when the last rank's engine loses an element of a vector."""
    from nemotron_rl.errors import WeightMismatch
    from nemotron_rl.rollout.sglang.held import held_tensors
    from nemotron_rl.rollout.sglang.message import Answer, Order
    from nemotron_rl.sync.colocated import ColocatedSync

    class Hit:
        version: int | None = None

        def order(self, order: Order, buffers: Sequence[Tensor] = (), digests: Tensor | None = None) -> Answer:
            answer: Answer = engine.order(order, buffers)
            if mine and digests is not None:
                held_tensors(engine.model)["backbone.norm_f.weight"].view[3] += 1
            return engine.order(Order(do="digest"), digests=digests) if digests is not None else answer

    try:
        ColocatedSync(trainer, Hit(), round_bytes=ROUND_BYTES).push(7)
    except WeightMismatch as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main()
