"""One GRPO update of our trainer against transformers' implementation of the same model, in one run on one GPU.

    python -m benchmarks.train_gpu [--num-experts 32] [--vocab-size 16384]

Both have the same weights, documents and loss, in bf16, without the MTP head, which transformers does not have, and
each the micro-batches that fit. The reference has Mamba kernels and grouped expert products, where mamba-ssm and
causal-conv1d are installed; its torch path needs gigabytes per document. Ours keeps fp32 masters and moments; the
reference is updated by torch's fused AdamW in bf16.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import common
from nemotron_rl.checkpoint.layout import CheckpointFolder
from nemotron_rl.checkpoint.synth import synthesize
from nemotron_rl.config.model import ModelSettings, ParallelSettings
from nemotron_rl.config.rl import AlgorithmSettings
from nemotron_rl.config.training import MtpSettings, OptimizerSettings
from nemotron_rl.megatron import backend

LAYERS = (0, 1, 7, 8)
DOCUMENTS, LENGTH, PROMPT = 16, 512, 64
OUR_MICRO, THEIR_MICRO, THEIR_MICRO_WITHOUT_KERNELS = 8, 8, 1
QUICK = {"hidden_size": 1024, "moe_latent_size": 256, "moe_intermediate_size": 512}
KINDS = (
    ("grouped products", ("group", "Group")),
    ("matrix products", ("gemm", "cutlass", "nvjet")),
    ("Mamba scan and convolution", ("chunk", "_state", "conv", "ssd")),
    ("attention", ("fmha", "flash", "attention")),
    ("optimizer and norms of gradients", ("multi_tensor", "adam")),
    ("copies", ("copy", "Memcpy", "cat", "Cat", "index")),
)


def main() -> int:
    parser = common.parser(__doc__)
    parser.add_argument("--num-experts", type=int, default=32)
    parser.add_argument("--vocab-size", type=int, default=16384)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    options = common.options_of(arguments)
    backend.activate("cuda")
    with tempfile.TemporaryDirectory() as scratch:
        start = checkpoint(arguments, options.quick, arguments.folder or Path(scratch))
        figures, goals = measure(start)
    return common.finish(options, "train_gpu", common.gpu(), figures, goals)


def checkpoint(arguments: argparse.Namespace, quick: bool, folder: Path) -> Path:
    """A synthetic checkpoint, unless it is there."""
    sizes = {"n_routed_experts": arguments.num_experts, "vocab_size": arguments.vocab_size} | (QUICK if quick else {})
    start = folder / "start"
    if not start.exists():
        folder.mkdir(parents=True, exist_ok=True)
        synthesize("ultra-550b-a55b", start, layers=LAYERS, overrides=sizes)
    return start


def measure(start: Path) -> tuple[dict[str, common.Figure], dict[str, common.Goal]]:
    """All figures."""
    import torch

    from nemotron_rl.megatron import process

    os.environ |= {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29541",
    }
    model = ModelSettings(backend="cuda", dtype="bf16")
    with process.model_parallel(model, ParallelSettings(), seed=0):
        batch = made_up_batch(start)
        ours, forward = our_update(start, model, batch)
        losses = [first(ours, "ours")]
        kernels = import_mamba_kernels()
        theirs = their_update(start, batch, THEIR_MICRO if kernels else THEIR_MICRO_WITHOUT_KERNELS)
        losses.append(first(theirs, f"transformers {'with' if kernels else 'without'} Mamba kernels"))
        pair = common.alternate(synchronized(ours), synchronized(theirs), rounds=5)
        forward_s = [synchronized(forward)() for _ in range(3)]
        where = {"ours": where_the_time_goes(ours), "transformers": where_the_time_goes(theirs)}
        peak = torch.cuda.max_memory_allocated() / 2**30
    tokens = DOCUMENTS * LENGTH
    flops = 6 * active_parameters(start) * tokens
    rate = common.figure([tokens / seconds for seconds in pair.ours], "tokens/s")
    figures = {
        "ours": rate,
        "transformers": common.figure([tokens / seconds for seconds in pair.reference], "tokens/s"),
        "ours, model FLOP/s": common.figure([flops / seconds / 1e12 for seconds in pair.ours], "TFLOP/s"),
        "transformers, model FLOP/s": common.figure([flops / seconds / 1e12 for seconds in pair.reference], "TFLOP/s"),
        "ours, update": pair.ours_figure("s"),
        "ours, log-prob pass": common.figure(forward_s, "s"),
        "both models, peak memory": common.figure([peak], "GiB"),
        "loss, ours": common.figure([losses[0]], "nat"),
        "loss, transformers": common.figure([losses[1]], "nat"),
        "transformers has Mamba kernels": common.figure([kernels], "1"),
        **{
            f"device time of one update, {whose}: {kind}": common.figure([seconds], "s")
            for whose, kinds in where.items()
            for kind, seconds in kinds.items()
        },
    }
    return figures, {"tokens per second against transformers": common.at_least(1 / pair.ratio, 1.5)}


def made_up_batch(start: Path) -> Any:
    """Random documents with random advantages; log-probs before the update are those of the first pass."""
    import torch

    from nemotron_rl.rl.batch import TokenSequence, make_batch

    vocab = CheckpointFolder.open(start).config["vocab_size"]
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(10, vocab, (DOCUMENTS, LENGTH), generator=generator).tolist()
    batch = make_batch([TokenSequence(tuple(row[:PROMPT]), tuple(row[PROMPT:])) for row in tokens], pad_token=0)
    advantage_B1 = torch.randn(DOCUMENTS, 1, generator=generator)
    return batch.with_(advantage_BL=advantage_B1 * batch.mask_BL)


def our_update(start: Path, model: ModelSettings, batch: Any) -> tuple[Callable[[], float], Callable[[], object]]:
    """(one update that returns its loss, one log-prob pass)."""
    from nemotron_rl.megatron.model import build_model
    from nemotron_rl.megatron.trainer import Trainer
    from nemotron_rl.rl.objective import policy_objective

    mtp = MtpSettings(enabled=False)
    built = build_model(start, model, ParallelSettings(), mtp=mtp)
    trainer = Trainer(built, OptimizerSettings(lr=1e-6), steps=1000, micro_batch_size=OUR_MICRO, mtp=mtp)
    objective = policy_objective(AlgorithmSettings(name="reinforce"))

    def update() -> float:
        return trainer.update(batch, objective).loss

    return update, lambda: trainer.logprobs(batch)


def import_mamba_kernels() -> bool:
    """Whether transformers finds Mamba kernels: it looks for attributes, which modules have once they are imported."""
    if any(importlib.util.find_spec(name) is None for name in ("mamba_ssm", "causal_conv1d")):
        return False
    for module in ("selective_state_update", "ssd_combined"):
        importlib.import_module(f"mamba_ssm.ops.triton.{module}")
    return True


def first(update: Callable[[], float], whose: str) -> float:
    """The loss of the first update, which compiles kernels."""
    began = time.perf_counter()
    loss = update()
    print(f"first update, {whose}: loss {loss:.4f}, {time.perf_counter() - began:.1f} s", flush=True)
    return loss


def their_update(start: Path, batch: Any, micro_batch: int) -> Callable[[], float]:
    """One update by transformers that returns its loss: REINFORCE, as ours."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(start, dtype=torch.bfloat16).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    micro_batches = [replace(one) for one in batch.micro_batches(micro_batch)]
    count = float(batch.mask_BL.sum())

    def update() -> float:
        total = 0.0
        for one in micro_batches:
            tokens_BL, mask_BL = one.tokens_BL.cuda(), one.mask_BL.cuda()
            logits_BLV = model(input_ids=tokens_BL, use_cache=False).logits[:, :-1].float()
            logprob_BL = logits_BLV.log_softmax(-1).gather(-1, tokens_BL[:, 1:, None]).squeeze(-1)
            loss = -(logprob_BL * one.advantage_BL.cuda()[:, 1:] * mask_BL[:, 1:]).sum() / count
            loss.backward()
            total += float(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return total

    return update


def synchronized(act: Callable[[], object]) -> Callable[[], float]:
    """Seconds of `act`, the device's work included."""
    import torch

    def run() -> None:
        act()
        torch.cuda.synchronize()

    return common.timed(run)


def where_the_time_goes(act: Callable[[], object]) -> dict[str, float]:
    """Seconds on the device by kind of kernel, largest first."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        act()
    seconds: Counter[str] = Counter()
    for event in seen.key_averages():
        kind = next((kind for kind, words in KINDS if any(word in event.key for word in words)), "everything else")
        seconds[kind] += event.self_device_time_total / 1e6
    return dict(seconds.most_common())


def active_parameters(start: Path) -> float:
    """Parameters that a token meets, embedding and MTP head left out."""
    folder = CheckpointFolder.open(start)
    chosen = folder.config["num_experts_per_tok"] / folder.config["n_routed_experts"]
    total = 0.0
    for name, tensor in folder.tensors.items():
        if not name.startswith(("mtp.", "backbone.embeddings")):
            size = 1
            for extent in tensor.shape:
                size *= extent
            total += size * (chosen if ".experts." in name else 1)
    return total


if __name__ == "__main__":
    sys.exit(main())
