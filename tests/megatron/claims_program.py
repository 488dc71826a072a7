"""What one rank shows by itself: packed documents are apart, the MTP loss is right, and how tokens are cut is nothing.

B samples · L tokens · R rows of the model's input · s tokens of a row · H hidden size
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nemotron_rl.config.model import ModelSettings, ParallelSettings
from nemotron_rl.config.training import MtpSettings, OptimizerSettings
from nemotron_rl.rl.batch import Batch
from tests.megatron.parity_program import ENTROPY, SHAPES, exported, gradients, sample_batch, surrogate

CUTS: dict[str, dict[str, Any]] = {
    "one_by_one": {"micro_batch_size": 1},
    "all_at_once": {"micro_batch_size": 99},
    "all_at_once_other_padding": {"micro_batch_size": 99},
    "packed_tight": {"micro_batch_size": 1, "max_tokens_per_gpu": 49},
    "packed_in_one_row": {"micro_batch_size": 1, "max_tokens_per_gpu": 4096},
    "packed_in_one_row_reversed": {"micro_batch_size": 1, "max_tokens_per_gpu": 4096},
}
STILL = OptimizerSettings(lr=0.0, clip_grad=0.0)
MTP = MtpSettings(loss_scale=0.3)


def claims(checkpoint: Path) -> dict[str, Any]:
    """Figures by claim; the tests beside this file judge them."""
    from nemotron_rl.megatron import process
    from nemotron_rl.megatron.model import build_model

    with process.model_parallel(ModelSettings(), ParallelSettings(), seed=1):
        model = build_model(checkpoint, ModelSettings(), ParallelSettings(), mtp=MTP)
        batch = sample_batch(list(range(len(SHAPES))))
        return {
            "cuts": cuts(model, batch),
            "entropy": entropy_gradients(model, batch),
            "isolation": isolation(model),
            "mtp_oracle": mtp_oracle(model, batch),
            "targets": targets_alone_matter(model, batch),
            "accepted": accepted(model, batch),
            "trunk": largest_gradients(model, batch),
        }


def separate_heads(checkpoint: Path) -> dict[str, Any]:
    """What a head with weights of its own at each depth exports, and its loss by the oracle and in an update."""
    from nemotron_rl.megatron import process
    from nemotron_rl.megatron.model import build_model
    from nemotron_rl.megatron.trainer import Trainer

    with process.model_parallel(ModelSettings(), ParallelSettings(), seed=1):
        model = build_model(checkpoint, ModelSettings(), ParallelSettings(), mtp=MTP)
        batch = sample_batch(list(range(len(SHAPES))))
        trainer = Trainer(model, STILL, steps=9, mtp=MTP, micro_batch_size=8)
        oracle = mtp_oracle(model, batch)
        update = trainer.update(batch, surrogate).metrics("train")
        return {"weights": exported(trainer), "mtp_oracle": oracle, "update": update}


def cuts(model: Any, batch: Batch) -> dict[str, Any]:
    """The same update, cut into micro-batches and packed in several ways and orders, and with other padding."""
    from nemotron_rl.megatron.trainer import Trainer

    beyond_BL = torch.arange(batch.tokens_BL.shape[1]) >= batch.length_B[:, None]
    noise_BL = torch.randint_like(batch.tokens_BL, 500)
    seen = {}
    for name, cut in CUTS.items():
        samples = batch
        if name.endswith("reversed"):
            samples = batch.map(lambda tensor: tensor.flip(0))
        elif name.endswith("other_padding"):
            samples = batch.with_(tokens_BL=torch.where(beyond_BL, noise_BL, batch.tokens_BL))
        trainer = Trainer(model, STILL, steps=99, mtp=MTP, entropy_coef=ENTROPY, **cut)
        update = trainer.update(samples, surrogate).metrics("train")
        seen[name] = {"update": update, "gradients": gradients(trainer, model)}
    return seen


def entropy_gradients(model: Any, batch: Batch) -> list[dict[str, Tensor]]:
    """Gradients of an update with the bonus, without it, and with it by way of all logits; at a temperature."""
    from nemotron_rl.megatron import passes
    from nemotron_rl.megatron.micro_batch import SequenceGrid, padded_rows
    from nemotron_rl.megatron.trainer import Trainer

    temperature, found = 0.7, []
    for coef in (ENTROPY, 0.0):
        options = {"mtp": MtpSettings(enabled=False), "temperature": temperature, "entropy_coef": coef}
        trainer = Trainer(model, STILL, steps=99, micro_batch_size=3, **options)
        trainer.update(batch, surrogate)
        found.append(gradients(trainer, model))

    def whole(micro_batch: Any, hidden_sRH: Tensor) -> Any:
        logits_BLV = micro_batch.collect(model.output_layer().logits(hidden_sRH).transpose(0, 1))[:, :-1]
        logprob_BLV = torch.log_softmax(logits_BLV / temperature, -1)
        chosen_BL = logprob_BLV.gather(-1, batch.tokens_BL[:, 1:, None]).squeeze(-1)
        entropy_BL = -(logprob_BLV.exp() * logprob_BLV).sum(-1)
        loss_BL = -chosen_BL * batch.advantage_BL[:, 1:] - ENTROPY * entropy_BL
        return (loss_BL * batch.mask_BL[:, 1:]).sum(), batch.mask_BL.sum().long(), {}

    for chunk in model.chunks:
        chunk.zero_grad_buffer()
    trainer._optimizer.zero_grad()  # what the optimizer was given, which the next pass would add
    passes.forward_backward(model, [padded_rows(batch, SequenceGrid())], whole, None)
    return [*found, gradients(trainer, model)]


def isolation(model: Any) -> dict[str, float]:
    """Gradient from every document's embeddings to one document's log-probs, and these against the document alone."""
    largest = {"other": 0.0, "own": float("inf"), "difference": 0.0, "relative": 0.0}
    for rows in ([0, 2, 3], [7, 1, 4, 2], [5, 2]):
        batch = sample_batch(rows)
        for place, row in enumerate(rows):
            embedding_sRH, logprob_BL = logprobs_with_embeddings(model, batch)
            (gradient_sRH,) = torch.autograd.grad(logprob_BL[place].sum(), embedding_sRH)
            first = sum(sum(SHAPES[other]) for other in rows[:place])
            own = slice(first, first + sum(SHAPES[row]))
            largest["own"] = min(largest["own"], float(gradient_sRH[own].abs().max()))
            gradient_sRH[own] = 0
            largest["other"] = max(largest["other"], float(gradient_sRH.abs().max()))
            _, alone_BL = logprobs_with_embeddings(model, sample_batch([row]))
            difference_L = (logprob_BL[place, : sum(SHAPES[row])] - alone_BL[0]).abs()
            largest["difference"] = max(largest["difference"], float(difference_L.max()))
            largest["relative"] = max(largest["relative"], float((difference_L / alone_BL[0].abs().clamp(min=1)).max()))
    return largest


def logprobs_with_embeddings(model: Any, batch: Batch) -> tuple[Tensor, Tensor]:
    """Embeddings [s, 1, H] and log-probs [B, L] of the batch as one packed row, with a graph between them."""
    from nemotron_rl.megatron.micro_batch import SequenceGrid, packed_row
    from nemotron_rl.megatron.predictions import response_logprobs

    hybrid, packed = model.hybrid()[0], packed_row(batch, SequenceGrid())
    embedding_sRH = hybrid.embedding(packed.tokens_Rs, torch.zeros_like(packed.tokens_Rs)).detach().requires_grad_()
    hybrid.mtp_process = False
    hidden_RsH = hybrid(packed.tokens_Rs, None, None, decoder_input=embedding_sRH, packed_seq_params=packed.packed)
    hybrid.mtp_process = True
    return embedding_sRH, response_logprobs(model.output_layer(), hidden_RsH.transpose(0, 1), packed, 1.0)


def mtp_oracle(model: Any, batch: Batch) -> list[dict[str, float]]:
    """Each depth by a loop over tokens: position i of depth k predicts token i + k + 2, and only response tokens."""
    captured: list[Tensor] = []
    hook = model.hybrid()[0].mtp.register_forward_hook(lambda _m, _i, out: captured.append(out.detach().clone()))
    context = mtp_alone(model, batch)
    hook.remove()
    _, *per_depth = captured[0].chunk(1 + model.mtp_depths)
    found = []
    for depth, hidden_sRH in enumerate(per_depth):
        logits_sRV = model.output_layer().logits(hidden_sRH).detach().double()
        places = [
            (i, row, int(batch.tokens_BL[row, i + depth + 2]))
            for row in range(len(batch.tokens_BL))
            for i in range(batch.tokens_BL.shape[1] - depth - 2)
            if batch.mask_BL[row, i + depth + 2]
        ]
        loop = -sum(float(logits_sRV[i, row].log_softmax(-1)[target]) for i, row, target in places)
        top = sum(int(logits_sRV[i, row].argmax()) == target for i, row, target in places)
        recorded = {
            "recorded": float(context.sums[f"loss{depth}"]),
            "accepted": float(context.sums[f"accepted{depth}"]),
        }
        found.append({"loop": loop, "top": top, "targets": len(places)} | recorded)
    return found


def targets_alone_matter(model: Any, batch: Batch) -> dict[str, bool]:
    """Whether the MTP loss and its gradient stay what they are when ids of prompts, or of responses, change as targets.

    As inputs a prompt's ids matter, so the hidden states are given.
    """
    from nemotron_rl.megatron.micro_batch import SequenceGrid, padded_rows
    from nemotron_rl.megatron.predictions import predicted

    length = batch.tokens_BL.shape[1]
    hidden_sRH = torch.randn(length, len(SHAPES), model.config.hidden_size, requires_grad=True)
    noise_BL = torch.randint_like(batch.tokens_BL, 500)

    def loss_and_gradient(tokens_BL: Tensor) -> Tensor:
        micro_batch = padded_rows(batch.with_(tokens_BL=tokens_BL), SequenceGrid())
        found, _ = predicted(model.output_layer(), hidden_sRH, micro_batch, 2)
        (gradient,) = torch.autograd.grad(found.logprob_N.sum(), hidden_sRH)
        return torch.cat([found.logprob_N.detach(), gradient.flatten()])

    before = loss_and_gradient(batch.tokens_BL)
    in_response_BL = batch.mask_BL > 0
    return {
        "prompt_and_padding": torch.equal(
            before, loss_and_gradient(torch.where(in_response_BL, batch.tokens_BL, noise_BL))
        ),
        "response": torch.equal(before, loss_and_gradient(torch.where(in_response_BL, noise_BL, batch.tokens_BL))),
    }


def accepted(model: Any, batch: Batch) -> tuple[int, int]:
    """Targets that count as accepted where every second sample says what the head would; and how many should be."""
    from nemotron_rl.megatron.micro_batch import SequenceGrid, padded_rows
    from nemotron_rl.megatron.predictions import predicted

    samples, length = batch.tokens_BL.shape
    hidden_sRH = torch.randn(length, samples, model.config.hidden_size)
    top_BL = model.output_layer().logits(hidden_sRH).argmax(-1).T
    says_so_B1 = torch.arange(samples)[:, None] % 2 == 0
    tokens_BL = batch.tokens_BL.clone()
    tokens_BL[:, 2:] = torch.where(says_so_B1, top_BL[:, :-2], (top_BL[:, :-2] + 1) % 500)
    micro_batch = padded_rows(batch.with_(tokens_BL=tokens_BL), SequenceGrid())
    found, _ = predicted(model.output_layer(), hidden_sRH, micro_batch, 2)
    return int(found.is_top_N.sum()), int((batch.mask_BL * says_so_B1)[:, 2:].sum())


def largest_gradients(model: Any, batch: Batch) -> dict[str, float]:
    """Largest gradient that the MTP loss alone gives, inside the head and outside of it."""
    for chunk in model.chunks:
        chunk.zero_grad_buffer()
    mtp_alone(model, batch)
    largest = {"mtp": 0.0, "trunk": 0.0}
    for name, parameter in model.unwrapped()[0].named_parameters():
        part = "mtp" if name.startswith("mtp.") else "trunk"
        largest[part] = max(largest[part], float(parameter.main_grad.abs().max()))
    return largest


def mtp_alone(model: Any, batch: Batch) -> Any:
    """One padded pass whose only loss is MTP's; what it recorded."""
    from nemotron_rl.megatron import passes
    from nemotron_rl.megatron.micro_batch import SequenceGrid, padded_rows
    from nemotron_rl.megatron.mtp_loss import MtpContext

    def nothing(micro_batch: Any, hidden_sRH: Tensor) -> Any:
        return hidden_sRH.sum() * 0, micro_batch.batch.mask_BL.sum().long(), {}

    context = MtpContext([0.5] * model.mtp_depths)
    passes.forward_backward(model, [padded_rows(batch, SequenceGrid())], nothing, context)
    return context
