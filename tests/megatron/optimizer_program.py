"""Run under torchrun by the test beside it: every optimizer variant takes steps on a tiny model; what it saw, as JSON.

python -m torch.distributed.run --nproc-per-node N tests/megatron/optimizer_program.py CHECKPOINT OUT.json
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from nemotron_rl.config.model import ModelSettings, ParallelSettings
from nemotron_rl.config.training import LrScaleSettings, MtpSettings, OptimizerSettings
from nemotron_rl.megatron import backend

VARIANTS: list[tuple[str, str, dict[str, Any]]] = [
    ("plain", "fp32", {}),
    ("distributed", "fp32", {"distributed": True}),
    ("plain", "bf16", {}),
    ("distributed", "bf16", {"distributed": True}),
    ("scaled", "fp32", {"lr_scale": LrScaleSettings(mtp=0.0, router=0.5, experts=0.0, mamba=2.0, embeddings=0.0)}),
]


def main(checkpoint: Path, out: Path) -> None:
    backend.activate("cpu")
    from nemotron_rl.megatron import process

    parallel = ParallelSettings(world_size=int(os.environ["WORLD_SIZE"]))
    with process.model_parallel(ModelSettings(), parallel, seed=1):
        seen = {f"{name}-{dtype}": observe(checkpoint, parallel, dtype, changes) for name, dtype, changes in VARIANTS}
        if process.is_first_rank():
            out.write_text(json.dumps(seen))


def observe(checkpoint: Path, parallel: ParallelSettings, dtype: Any, changes: dict[str, Any]) -> dict[str, Any]:
    import torch

    from nemotron_rl.megatron import process
    from nemotron_rl.megatron.model import build_model
    from nemotron_rl.megatron.optimizer import parameter_group, set_step, torch_optimizers
    from nemotron_rl.megatron.trainer import Trainer
    from nemotron_rl.ops.checksum import tensor_checksum
    from nemotron_rl.rl.batch import TokenSequence, make_batch
    from nemotron_rl.rl.losses import LossTerms

    documents = [TokenSequence((5, 6, 7), tuple(range(10 + i, 20 + i))) for i in range(4)]
    batch = make_batch(process.share_of_dp(documents), 0)
    # No clipping: the norm is summed in another order by a distributed optimizer, and all else is element by element.
    schedule: dict[str, Any] = {"lr": 1e-3, "warmup_steps": 2, "decay": "cosine"}
    settings = OptimizerSettings(**schedule, eps=1e-5, weight_decay=0.1, clip_grad=0.0, **changes)
    mtp = MtpSettings(loss_scale=0.3)
    model = build_model(
        checkpoint, ModelSettings(dtype=dtype), parallel, mtp=mtp, distributed_optimizer=settings.distributed
    )
    trainer = Trainer(model, settings, steps=6, micro_batch_size=4, mtp=mtp)
    names = [name for name, _ in model.unwrapped()[0].named_parameters()]

    def digest() -> dict[str, str]:
        return {name: tensor_checksum(tensor) for name, tensor in trainer.weights()}

    def parameters() -> dict[str, torch.Tensor]:
        return {name: p.detach().clone() for name, p in model.unwrapped()[0].named_parameters()}

    def numbers() -> dict[str, int]:
        groups = [g for adam in torch_optimizers(trainer._optimizer) for g in adam.param_groups]
        return {"masters": sum(p.numel() for g in groups for p in g["params"])}

    def step() -> float:
        return trainer.update(batch, lambda logprob_BL, _: LossTerms(-logprob_BL)).lr

    loaded = digest()
    lrs = [step()]  # the warm-up starts at 0
    seen: dict[str, Any] = {"unchanged_at_lr_zero": digest() == loaded, "names": len(names), **numbers()}
    before = parameters()
    lrs.append(step())
    moved = {name: not torch.equal(value, before[name]) for name, value in parameters().items()}
    seen["moved"] = {
        group: sorted({moved[n] for n in names if str(parameter_group(n)) == group}) for group in _groups()
    }
    lrs += [step() for _ in range(4)]
    seen |= {"lr": lrs, "weights": digest()}
    groups = [g for adam in torch_optimizers(trainer._optimizer) for g in adam.param_groups]
    set_step(trainer._optimizer, trainer._schedule, 1)
    seen["group_lrs"] = sorted({g["lr"] for g in groups if g["params"]})
    seen["adam_steps"] = sorted(
        {float(s["step"]) for adam in torch_optimizers(trainer._optimizer) for s in adam.state.values()}
    )
    return seen


def _groups() -> list[str]:
    return ["mtp", "router", "experts", "mamba", "embeddings", "None"]


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
