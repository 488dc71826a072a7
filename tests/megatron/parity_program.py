"""What one model computes in many layouts: log-probs, logits and gradients, padded and packed, on 1, 2 and 4 ranks.

python -m tests.megatron.parity_program CHECKPOINT OUT_FOLDER LAYOUT...

B samples of this data-parallel rank · L tokens · V vocabulary
"""

from __future__ import annotations

import random
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from nemotron_rl.config.model import ModelSettings, ParallelSettings
from nemotron_rl.config.training import MtpSettings, OptimizerSettings
from nemotron_rl.megatron import backend
from nemotron_rl.rl.batch import Batch, TokenSequence, make_batch
from nemotron_rl.rl.losses import LossTerms
from tests.megatron import gang

LAYOUTS = {
    "one": ParallelSettings(),
    "tp2": ParallelSettings(world_size=2, tp=2),
    "ep2": ParallelSettings(world_size=2, ep=2),
    "pp2": ParallelSettings(world_size=2, pp=2),
    "cp2": ParallelSettings(world_size=2, cp=2),
    "dp2": ParallelSettings(world_size=2),
    "tp2-etp2": ParallelSettings(world_size=2, tp=2, etp=2),
    "tp2-ep2": ParallelSettings(world_size=4, tp=2, ep=2),
    "tp2-pp2": ParallelSettings(world_size=4, tp=2, pp=2),
    "tp2-cp2": ParallelSettings(world_size=4, tp=2, cp=2),
    "tp2-dp2": ParallelSettings(world_size=4, tp=2),
    "ep2-pp2": ParallelSettings(world_size=4, ep=2, pp=2),
    "ep2-cp2": ParallelSettings(world_size=4, ep=2, cp=2),
    "ep2-dp2": ParallelSettings(world_size=4, ep=2),
    "pp2-cp2": ParallelSettings(world_size=4, pp=2, cp=2),
    "pp2-dp2": ParallelSettings(world_size=4, pp=2),
    "cp2-dp2": ParallelSettings(world_size=4, cp=2),
}
# Prompts and responses of unequal length, some from the first token on, so that ranks hold different token counts.
SHAPES = [(1, 20), (3, 2), (40, 9), (17, 6), (16, 16), (2, 3), (25, 1), (9, 31)]
TOKENS_PER_GPU = 112
ENTROPY = 0.5
"""Weight of the entropy bonus: large, so that its gradient shows."""
MODES = {"padded": {"micro_batch_size": 4}, "packed": {"micro_batch_size": 1, "max_tokens_per_gpu": TOKENS_PER_GPU}}


def main() -> None:
    checkpoint, out, layouts = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    backend.activate("cpu")
    import nemotron_rl.megatron.trainer  # noqa: F401  once, in the parent

    for layout in layouts:
        if layout in LAYOUTS:
            gang.run_gang(LAYOUTS[layout].world_size, partial(rank, checkpoint, out, layout))
        else:
            gang.run_gang(1, partial(alone, checkpoint, out, layout))


def alone(checkpoint: Path, out: Path, what: str) -> None:
    """One rank's claims, or those about the checkpoint `separate` beside the other."""
    from tests.megatron.claims_program import claims, separate_heads

    found = claims(checkpoint) if what == "claims" else separate_heads(checkpoint.with_name("separate"))
    torch.save(found, out / f"{what}.pt")


def rank(checkpoint: Path, out: Path, layout: str) -> None:
    from nemotron_rl.megatron import process

    parallel = LAYOUTS[layout]
    with process.model_parallel(ModelSettings(), parallel, seed=1):
        seen = observe(checkpoint, parallel)
        if process.is_first_rank():
            torch.save(seen, out / f"{layout}.pt")


def observe(checkpoint: Path, parallel: ParallelSettings) -> dict[str, Any]:
    from nemotron_rl.megatron import process
    from nemotron_rl.megatron.model import build_model
    from nemotron_rl.megatron.trainer import Trainer

    mtp = MtpSettings(loss_scale=0.3)
    model = build_model(checkpoint, ModelSettings(), parallel, mtp=mtp)
    still = OptimizerSettings(lr=0.0, clip_grad=0.0)
    trainers = {
        name: Trainer(model, still, steps=9, mtp=mtp, entropy_coef=ENTROPY, **mode) for name, mode in MODES.items()
    }
    batch = sample_batch(process.share_of_dp(range(len(SHAPES))))
    seen: dict[str, Any] = {"weights": exported(trainers["padded"]), "parameters": parameters(model)}
    seen["leaders"] = everyones((process.dp_rank(), process.from_replica_leader(dist.get_rank)))
    for name, trainer in trainers.items():
        logprob_BL = trainer.logprobs(batch)
        update = trainer.update(batch, surrogate)
        seen[name] = {
            "logprobs": process.gathered_over_dp(
                [row[mask > 0] for row, mask in zip(logprob_BL, batch.mask_BL, strict=True)]
            ),
            "logits": logits(trainer, model, batch),
            "update": update.metrics("train"),
        }
        seen[name]["gradients"] = gradients(trainer, model)
    return seen


def sample_batch(rows: list[int]) -> Batch:
    """These rows of the fixed samples, each with an advantage of its own."""
    sequences = []
    for row in rows:
        draw = random.Random(row)
        prompt, response = SHAPES[row]
        tokens = [draw.randrange(4, 500) for _ in range(prompt + response)]
        sequences.append(TokenSequence(tuple(tokens[:prompt]), tuple(tokens[prompt:])))
    batch = make_batch(sequences, pad_token=0)
    advantage_B = torch.tensor([(-1) ** row * (1 + row / 4) for row in rows])
    return batch.with_(advantage_BL=advantage_B[:, None] * batch.mask_BL)


def surrogate(logprob_BL: Tensor, batch: Batch) -> LossTerms:
    return LossTerms(-logprob_BL * batch.advantage_BL, {"train/nll": -logprob_BL.detach()})


def exported(trainer: Any) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in trainer.weights()}


def parameters(model: Any) -> list[tuple[int, int, int, int]]:
    """Of each rank: its pipeline stage, and how many parameters outside experts, in experts, and biases it holds."""
    from megatron.core import parallel_state

    counts = {"dense": 0, "expert": 0}
    for name, parameter in model.unwrapped()[0].named_parameters():
        counts["expert" if ".experts." in name and "shared" not in name else "dense"] += parameter.numel()
    biases = sum(
        buffer.numel() for name, buffer in model.unwrapped()[0].named_buffers() if name.endswith("expert_bias")
    )
    return everyones((parallel_state.get_pipeline_model_parallel_rank(), counts["dense"], counts["expert"], biases))


def everyones(mine: Any) -> list[Any]:
    """What each rank has, by rank."""
    found = [mine] * dist.get_world_size()
    dist.all_gather_object(found, mine)
    return found


def logits(trainer: Any, model: Any, batch: Batch) -> list[Tensor]:
    """Logits of each sample's tokens, samples of all ranks in their order."""
    from megatron.core.tensor_parallel import gather_from_tensor_model_parallel_region

    from nemotron_rl.megatron import passes, process

    def read(micro_batch: Any, hidden_sRH: Tensor) -> Tensor:
        whole_sRV = gather_from_tensor_model_parallel_region(model.output_layer().logits(hidden_sRH))
        return micro_batch.collect(whole_sRV.transpose(0, 1))

    division = trainer._divide(batch)
    parts = passes.forward(model, division.micro_batches, read)
    mine = [row for part in parts for row in part]
    samples = division.samples
    if samples is None:
        first = process.dp_rank() * len(batch.tokens_BL)
        samples = range(first, first + len(batch.tokens_BL))
    mine = process.value_from_pipeline_last(mine)
    pairs = process.gathered_over_dp(list(zip(samples, mine, strict=True)))
    return [row[: sum(SHAPES[sample])] for sample, row in sorted(pairs, key=lambda pair: pair[0])]


def gradients(trainer: Any, model: Any) -> dict[str, Tensor]:
    """Gradients under Hugging Face names: exported as if they were the weights. The last thing done with the model."""
    kept = []
    for chunk in model.unwrapped():
        for parameter in chunk.parameters():
            kept.append((parameter, parameter.data.clone()))
            parameter.data.copy_(parameter.main_grad)
    found = exported(trainer)
    for parameter, value in kept:
        parameter.data.copy_(value)
    return found


if __name__ == "__main__":
    main()
