"""Replayed routes in several layouts, padded and packed, and the claims that one rank shows by itself.

python -m tests.megatron.routing_program CHECKPOINT OUT_FOLDER LAYOUT...
"""

from __future__ import annotations

import json
import random
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nemotron_rl.config.model import ModelSettings, ParallelSettings
from nemotron_rl.config.rollout import SamplingSettings
from nemotron_rl.config.training import MoeSettings, MtpSettings, OptimizerSettings
from nemotron_rl.megatron import backend
from nemotron_rl.rl.batch import Batch, TokenSequence, make_batch
from tests.megatron import gang
from tests.megatron.parity_program import LAYOUTS, MODES, SHAPES, exported, gradients, surrogate

SPLITS = ["tp2", "ep2", "pp2", "cp2", "dp2"]
MTP = MtpSettings(loss_scale=0.3)
STILL = OptimizerSettings(lr=0.0, clip_grad=0.0)
MOVING = OptimizerSettings(lr=1e-3, eps=1e-5)


def main() -> None:
    checkpoint, out, layouts = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    backend.activate("cpu")
    import nemotron_rl.megatron.trainer  # noqa: F401  once, in the parent

    for layout in layouts:
        gang.run_gang(LAYOUTS[layout].world_size, partial(rank, checkpoint, out, layout))


def rank(checkpoint: Path, out: Path, layout: str) -> None:
    from nemotron_rl.megatron import process

    parallel = LAYOUTS[layout]
    with process.model_parallel(ModelSettings(), parallel, seed=1):
        seen = observe(checkpoint, parallel)
        if layout == "one":
            seen |= claims(checkpoint)
        if process.is_first_rank():
            torch.save(seen, out / f"{layout}.pt")


def altered_batch(config: dict[str, Any], rows: list[int], layers: int = 2) -> Batch:
    """Fixed samples with routes by chance; the last token has none."""
    sequences = []
    for row in rows:
        draw = random.Random(row)
        prompt, response = SHAPES[row]
        tokens = [draw.randrange(4, 500) for _ in range(prompt + response)]
        experts, top = config["n_routed_experts"], config["num_experts_per_tok"]
        routes = [[draw.sample(range(experts), top) for _ in range(layers)] for _ in tokens[1:]]
        routes_TMK = torch.tensor(routes, dtype=torch.int16)
        sequences.append(TokenSequence(tuple(tokens[:prompt]), tuple(tokens[prompt:]), (), routes_TMK))
    batch = make_batch(sequences, pad_token=0)
    advantage_B = torch.tensor([(-1) ** row * (1 + row / 4) for row in rows])
    return batch.with_(advantage_BL=advantage_B[:, None] * batch.mask_BL)


def observe(checkpoint: Path, parallel: ParallelSettings) -> dict[str, Any]:
    """Log-probs, gradients and metrics with altered routes; then one step that updates the expert bias."""
    from nemotron_rl.megatron import process
    from nemotron_rl.megatron.model import build_model
    from nemotron_rl.megatron.trainer import Trainer

    config = json.loads((checkpoint / "config.json").read_text())
    moe = MoeSettings(expert_bias="updated", expert_bias_rate=0.125)
    batch = altered_batch(config, process.share_of_dp(range(len(SHAPES))))
    seen: dict[str, Any] = {}
    for name, mode in MODES.items():
        model = build_model(checkpoint, ModelSettings(), parallel, mtp=MTP, moe=moe)
        trainer = Trainer(model, STILL, steps=9, mtp=MTP, **mode)
        logprob_BL = trainer.logprobs(batch)
        update = trainer.update(batch, surrogate)
        rows = [row[mask > 0] for row, mask in zip(logprob_BL, batch.mask_BL, strict=True)]
        biases = {n: t for n, t in exported(trainer).items() if n.endswith("e_score_correction_bias")}
        seen[name] = {
            "logprobs": process.gathered_over_dp(rows),
            "update": update.metrics("train"),
            "biases": biases,
            "gradients": gradients(trainer, model),
        }
    return seen


def claims(checkpoint: Path) -> dict[str, Any]:
    """See the tests."""
    from nemotron_rl.megatron.model import build_model
    from nemotron_rl.megatron.trainer import Trainer
    from nemotron_rl.rollout.engine import GenerateRequest
    from nemotron_rl.rollout.reference.engine import ReferenceEngine
    from nemotron_rl.sync.push import push

    config = json.loads((checkpoint / "config.json").read_text())
    model = build_model(checkpoint, ModelSettings(), ParallelSettings(), mtp=MTP)
    trainer = Trainer(model, MOVING, steps=9, mtp=MTP, micro_batch_size=3, keep_reference=True)
    weights = exported(trainer)
    engine = ReferenceEngine.from_folder(checkpoint, [3])
    push(trainer.weights, engine, version=0)
    draw = random.Random(0)
    prompts = [tuple(draw.randrange(4, 500) for _ in range(n)) for n, _ in SHAPES]
    asked = [GenerateRequest(p, seed=i) for i, p in enumerate(prompts)]
    responses = engine.generate(asked, SamplingSettings(max_new_tokens=12), routes=True)
    sequences = [TokenSequence(p, r.tokens, r.logprobs, r.routes) for p, r in zip(prompts, responses, strict=True)]
    batch, altered = make_batch(sequences, 0), altered_batch(config, list(range(len(SHAPES))))
    without = batch.with_(routes_BLMK=None)
    seen: dict[str, Any] = {"config": config, "weights": weights, "altered": altered, "sequences": sequences}
    seen["megatron_routes"] = megatron_routes(trainer, model, without)
    seen["equal_routes"] = torch.equal(trainer.logprobs(batch), trainer.logprobs(without))
    seen["reference"] = torch.equal(
        trainer.reference_logprobs(altered), trainer.logprobs(altered.with_(routes_BLMK=None))
    )
    plain, replayed = trainer.logprobs(altered.with_(routes_BLMK=None)), trainer.logprobs(altered)
    seen["difference"] = float((plain - replayed).abs().max())
    seen["altered_logprobs"] = replayed
    seen["recompute"] = recomputed(checkpoint, altered)
    seen["orders"] = [
        trainer_of(model, max_tokens_per_gpu=4096).logprobs(one) for one in (altered, altered.map(lambda t: t.flip(0)))
    ]
    before = {n: t.clone() for n, t in exported(trainer).items() if n.endswith("e_score_correction_bias")}
    update = trainer.update(batch, surrogate_of_ones)
    after = exported(trainer)
    seen["frozen"] = [n for n, t in before.items() if not torch.equal(t.view(torch.int32), after[n].view(torch.int32))]
    seen["changed"] = update.metrics("train")["routing/changed"]
    seen["frozen_metrics"] = [name for name in update.metrics("train") if "bias" in name]
    seen["without"] = "routing/changed" in trainer.update(without, surrogate_of_ones).metrics("train")
    seen["updated"] = updated(checkpoint, batch, engine)
    return seen


def surrogate_of_ones(logprob_BL: Tensor, batch: Batch) -> Any:
    return surrogate(logprob_BL, batch.with_(advantage_BL=batch.mask_BL))


def trainer_of(model: Any, **mode: Any) -> Any:
    from nemotron_rl.megatron.trainer import Trainer

    return Trainer(model, STILL, steps=9, mtp=MTP, **{"micro_batch_size": 4} | mode)


def megatron_routes(trainer: Any, model: Any, batch: Batch) -> list[Tensor]:
    """Routing maps [B, L, E] of each trunk router when it routes for itself, as megatron hands them to its experts."""
    found: list[Tensor] = []
    hooks = [
        module.register_forward_hook(lambda _m, _i, out: found.append(out[1].clone()))
        for name, module in model.hybrid()[0].decoder.named_modules()
        if name.endswith("mlp.router")
    ]
    trainer_of(model, micro_batch_size=99).logprobs(batch)
    for hook in hooks:
        hook.remove()
    samples, length = batch.tokens_BL.shape
    return [one.view(length, samples, -1).transpose(0, 1) for one in found]


def recomputed(checkpoint: Path, batch: Batch) -> dict[str, Any]:
    """Gradients with each way of recomputation, in one micro-batch after the other."""
    from nemotron_rl.megatron.model import build_model

    seen = {}
    for name in ("none", "full", "moe"):
        model = build_model(checkpoint, ModelSettings(), ParallelSettings(), mtp=MTP)
        if name == "full":
            model.config.recompute_granularity, model.config.recompute_method = "full", "uniform"
            model.config.recompute_num_layers = 1
        for module in model.hybrid()[0].modules():
            if name == "moe" and hasattr(module, "moe_layer_recompute"):
                module.moe_layer_recompute = True
        trainer = trainer_of(model)
        update = trainer.update(batch, surrogate).metrics("train")
        seen[name] = {"update": update, "gradients": gradients(trainer, model)}
    return seen


def updated(checkpoint: Path, batch: Batch, engine: Any) -> dict[str, Any]:
    """A step with an updated bias in fp32 and in bf16: the biases before and after, and the proof of a sync."""
    from nemotron_rl.megatron.model import build_model
    from nemotron_rl.megatron.trainer import Trainer
    from nemotron_rl.sync.push import push

    seen: dict[str, Any] = {}
    for dtype in ("fp32", "bf16"):
        moe = MoeSettings(expert_bias="updated", expert_bias_rate=1e-3)
        model = build_model(checkpoint, ModelSettings(dtype=dtype), ParallelSettings(), mtp=MTP, moe=moe)
        trainer = Trainer(model, MOVING, steps=9, mtp=MTP, micro_batch_size=4)
        before = biases(trainer)
        update = trainer.update(batch, surrogate_of_ones).metrics("train")
        seen[dtype] = {"before": before, "after": biases(trainer), "update": update}
        if dtype == "fp32":
            push(trainer.weights, engine, version=7)
            seen["engine"] = {name: engine.tensor(name).clone() for name in before}
    return seen


def biases(trainer: Any) -> dict[str, Tensor]:
    return {n: t.clone() for n, t in trainer.weights() if n.endswith("e_score_correction_bias")}


if __name__ == "__main__":
    main()
