"""Run under torchrun by the tests beside it: trains a tiny model for real and writes what it saw as JSON.

python -m torch.distributed.run --nproc-per-node N tests/megatron/program.py CHECKPOINT OUT.json --tp 1 --pp 1 --ep 1
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

from nemotron_rl.config.model import ModelSettings, ParallelSettings
from nemotron_rl.config.rollout import SamplingSettings
from nemotron_rl.config.training import MtpSettings, OptimizerSettings
from nemotron_rl.megatron import backend

# Responses of unequal length, some from the first token on, so that ranks hold different token counts.
SHAPES = [(1, 20), (3, 2), (40, 9), (17, 6), (16, 16), (2, 3), (25, 1), (9, 31)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("out", type=Path)
    for axis in ("tp", "pp", "ep"):
        parser.add_argument(f"--{axis}", type=int, default=1)
    args = parser.parse_args()
    backend.activate("cpu")
    import os

    from nemotron_rl.megatron import process

    parallel = ParallelSettings(world_size=int(os.environ["WORLD_SIZE"]), tp=args.tp, pp=args.pp, ep=args.ep)
    with process.model_parallel(ModelSettings(), parallel, seed=1):
        seen = observe(args.checkpoint, parallel, args.out.parent)
        if process.is_first_rank():
            args.out.write_text(json.dumps(seen))


def observe(checkpoint: Path, parallel: ParallelSettings, scratch: Path) -> dict[str, Any]:
    import torch

    from nemotron_rl.checkpoint.tokenizer import ChatTokenizer
    from nemotron_rl.megatron import process, torch_dist
    from nemotron_rl.megatron.export import export_checkpoint
    from nemotron_rl.megatron.model import build_model
    from nemotron_rl.megatron.trainer import Trainer
    from nemotron_rl.ops.checksum import tensor_checksum
    from nemotron_rl.rl.batch import TokenSequence, make_batch
    from nemotron_rl.rl.losses import LossTerms
    from nemotron_rl.rollout.engine import GenerateRequest
    from nemotron_rl.rollout.reference.engine import ReferenceEngine
    from nemotron_rl.rollout.reference.load import folder_weights
    from nemotron_rl.sync.peers import World
    from nemotron_rl.sync.push import push

    def digest() -> dict[str, str]:
        return {name: tensor_checksum(tensor) for name, tensor in trainer.weights()}

    def kept() -> dict[str, torch.Tensor]:
        return {name: tensor.clone() for name, tensor in trainer.weights()}

    mtp = MtpSettings(loss_scale=0.3)
    # A large eps keeps Adam from turning rounding noise of tiny gradients into full steps.
    optimizer = OptimizerSettings(lr=1e-3, eps=1e-5, clip_grad=1.0)
    model = build_model(checkpoint, ModelSettings(), parallel, mtp=mtp)
    trainer = Trainer(model, optimizer, steps=10, micro_batch_size=3, mtp=mtp, keep_reference=True)
    seen: dict[str, Any] = {}

    source = {name: tensor.float() for name, tensor in folder_weights(checkpoint)}
    loaded = kept()
    seen["loaded"] = {
        "tensors": len(loaded),
        "missing": sorted(source.keys() ^ loaded.keys()),
        "different": [n for n in source if n in loaded and not torch.equal(loaded[n].float(), source[n])],
    }

    views = trainer.local_views()
    by_rank = World().gather([(placed.name, placed.box) for placed in views])
    there = {placed for placements in by_rank for placed in placements}
    elements: dict[str, int] = {}
    for name, box in there:
        elements[name] = elements.get(name, 0) + box.numel
    seen["views"] = {
        "incomplete": sorted(name for name, tensor in loaded.items() if elements.get(name) != tensor.numel()),
        "different": [v.name for v in views if not torch.equal(v.view, v.box.of(loaded[v.name]))],
        "here": sum(placed.box.numel for placed in views) / sum(tensor.numel() for tensor in loaded.values()),
        "in_place": all(placed.view.untyped_storage().data_ptr() in storages(model) for placed in views),
    }

    engine = ReferenceEngine.from_folder(checkpoint, ChatTokenizer.from_folder(checkpoint).eos_token_ids)
    proof = push(trainer.weights, engine, version=0)
    seen["proof"] = {"tensors": proof.tensors, "bytes": proof.nbytes}
    draw = random.Random(0)
    prompts = [tuple(draw.randrange(4, 500) for _ in range(n)) for n, _ in SHAPES]
    sampling = SamplingSettings(max_new_tokens=20)
    responses = engine.generate([GenerateRequest(p, seed=i) for i, p in enumerate(prompts)], sampling)
    generated = [TokenSequence(p, r.tokens, r.logprobs) for p, r in zip(prompts, responses, strict=True)]
    batch = make_batch(process.share_of_dp(generated), 0, parallel.tp)
    difference = (trainer.logprobs(batch) - batch.rollout_logprob_BL).abs()
    seen["engine_difference"] = max(process.gathered_over_dp([float(difference.max())]))

    fixed_responses = [tuple(draw.randrange(4, 500) for _ in range(n)) for _, n in SHAPES]
    fixed = [TokenSequence(p, r) for p, r in zip(prompts, fixed_responses, strict=True)]
    batch = make_batch(process.share_of_dp(fixed), 0, parallel.tp)
    before = trainer.logprobs(batch)
    seen["logprobs"] = [row[mask > 0].tolist() for row, mask in zip(before, batch.mask_BL, strict=True)]
    seen["logprobs"] = process.gathered_over_dp(seen["logprobs"])

    if parallel.world_size == 1:
        seen["mtp"] = _mtp_oracle(trainer, model, batch)
        seen["trunk_gradient"] = _trunk_gradient(trainer, model, batch)
    update = trainer.update(batch, lambda logprob_BL, _: LossTerms(-logprob_BL, {"x": -logprob_BL.detach()}))
    seen["update"] = update.metrics("update")
    after = kept()
    seen["changed"] = sorted(name for name in after if not torch.equal(after[name], loaded[name]))
    if process.is_first_rank():
        torch.save(after, scratch / f"after-{parallel.world_size}-{parallel.tp}-{parallel.pp}-{parallel.ep}.pt")

    reference = trainer.reference_logprobs(batch)
    seen["reference_equals_start"] = bool(torch.equal(reference, before))
    seen["reference_leaves_weights"] = digest() == {n: tensor_checksum(t) for n, t in after.items()}

    converted, exported = scratch / "converted", scratch / "exported"
    torch_dist.save(converted, model.unwrapped())
    if process.is_first_rank():
        exported.mkdir()
        (converted / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    export_checkpoint(trainer.weights(), checkpoint, exported)
    again = build_model(converted, ModelSettings(), parallel, mtp=mtp)
    still = Trainer(again, OptimizerSettings(lr=0.0), steps=3, micro_batch_size=8, mtp=mtp)
    seen["converted"] = {n: tensor_checksum(t) for n, t in still.weights()} == digest()
    still.update(batch, lambda logprob_BL, _: LossTerms(-logprob_BL))
    seen["step_at_lr_zero"] = {n: tensor_checksum(t) for n, t in still.weights()} == digest()
    return seen


def storages(model: Any) -> set[int]:
    """Where the model's parameters and buffers lie."""
    own = (t for chunk in model.unwrapped() for t in (*chunk.parameters(), *chunk.buffers()))
    return {tensor.untyped_storage().data_ptr() for tensor in own}


def _mtp_oracle(trainer: Any, model: Any, batch: Any) -> dict[str, float]:
    """The MTP loss by a loop over tokens: position i of the head predicts token i + 2, and only response tokens."""
    import torch

    captured: list[torch.Tensor] = []
    hook = model.hybrid()[0].mtp.register_forward_hook(lambda _m, _i, out: captured.append(out.detach().clone()))
    context = _mtp_alone(trainer, model, batch)
    hook.remove()
    _, head_LBH = captured[0].chunk(2)  # the trunk's hidden states come first
    head_LBV = model.output_layer().logits(head_LBH).detach().double()
    total, count, top = 0.0, 0, 0
    for row in range(len(batch.tokens_BL)):
        for i in range(batch.tokens_BL.shape[1] - 2):
            if batch.mask_BL[row, i + 2]:
                target = int(batch.tokens_BL[row, i + 2])
                total -= float(head_LBV[i, row].log_softmax(-1)[target])
                top += int(head_LBV[i, row].argmax()) == target
                count += 1
    recorded = {name: float(value) / count for name, value in context.sums.items()}
    return {"loop": total / count, "targets": count, "recorded": recorded["loss0"], "top": top / count} | {
        "accepted": recorded["accepted0"]
    }


def _trunk_gradient(trainer: Any, model: Any, batch: Any) -> dict[str, float]:
    """Largest gradient that the MTP loss alone gives, inside the head and outside of it."""
    for chunk in model.chunks:
        chunk.zero_grad_buffer()
    _mtp_alone(trainer, model, batch)
    largest = {"mtp": 0.0, "trunk": 0.0}
    for name, parameter in model.unwrapped()[0].named_parameters():
        part = "mtp" if name.startswith("mtp.") else "trunk"
        largest[part] = max(largest[part], float(parameter.main_grad.abs().max()))
    return largest


def _mtp_alone(trainer: Any, model: Any, batch: Any) -> Any:
    """One pass whose only loss is MTP's; what it recorded."""
    from nemotron_rl.megatron import passes

    def nothing(micro_batch: Any, hidden: Any) -> Any:
        return hidden.sum() * 0, micro_batch.batch.mask_BL.sum().long(), {}

    context = trainer._mtp_context(*_counts(trainer, batch))
    passes.forward_backward(model, trainer._divide(batch, micro_batch_size=99).micro_batches, nothing, context)
    return context


def _counts(trainer: Any, batch: Any) -> tuple[int, list[int]]:
    tokens, *targets = trainer._global_counts(batch)
    return tokens, targets


if __name__ == "__main__":
    main()
