"""Our side: megatron-core's HybridModel on one rank, its trainer and its optimizer."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.grpo_step.work import BETAS, CLIP_GRAD, CLIP_HIGH, CLIP_LOW, EPS, LEARNING_RATE, FirstUpdate, Work
from nemotron_rl.config.model import ModelSettings, ParallelSettings
from nemotron_rl.config.rl import AlgorithmSettings
from nemotron_rl.config.training import MtpSettings, OptimizerSettings
from nemotron_rl.megatron import backend
from tests.ports import free_ports

if TYPE_CHECKING:
    from nemotron_rl.megatron.trainer import Trainer
    from nemotron_rl.rl.batch import Batch


def serve(link: Any, work: Work, max_tokens: int | None) -> None:
    """Answer requests until the last: an update with its seconds, a log-prob pass with its own."""
    backend.activate("cpu")
    from nemotron_rl.megatron import process

    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0])}
    settings = ModelSettings(threads=work.threads)
    with process.model_parallel(settings, ParallelSettings(), seed=0):
        _serve(link, work, settings, max_tokens)


def _serve(link: Any, work: Work, settings: ModelSettings, max_tokens: int | None) -> None:
    from nemotron_rl.megatron.model import build_model
    from nemotron_rl.megatron.trainer import Trainer
    from nemotron_rl.rl.objective import policy_objective

    mtp = MtpSettings(enabled=False)
    beta1, beta2 = BETAS
    optimizer = OptimizerSettings(lr=LEARNING_RATE, beta1=beta1, beta2=beta2, eps=EPS, clip_grad=CLIP_GRAD)
    model = build_model(work.start, settings, ParallelSettings(), mtp=mtp)
    trainer = Trainer(
        model,
        optimizer,
        steps=10_000,
        micro_batch_size=work.micro_batch_size,
        max_tokens_per_gpu=max_tokens,
        mtp=mtp,
    )
    objective = policy_objective(AlgorithmSettings(name="grpo", clip_low=CLIP_LOW, clip_high=CLIP_HIGH))
    batch = _batch(work)
    loss = trainer.update(batch, objective).loss
    link.send(FirstUpdate(loss, _gradients(trainer, model)))
    for request in iter(link.recv, "stop"):
        began = time.perf_counter()
        if request == "update":
            trainer.update(batch, objective)
        else:
            trainer.logprobs(batch)
        link.send(time.perf_counter() - began)


def _batch(work: Work) -> Batch:
    import torch

    from nemotron_rl.rl.batch import TokenSequence, make_batch

    # Log-probs of an engine have the place of those before the update.
    rows = [TokenSequence(one.prompt, one.response, one.old_logprobs) for one in work.samples]
    batch = make_batch(rows, pad_token=0)
    advantage_B1 = torch.tensor([[one.advantage] for one in work.samples])
    return batch.with_(old_logprob_BL=batch.rollout_logprob_BL, advantage_BL=advantage_B1 * batch.mask_BL)


def _gradients(trainer: Trainer, model: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Of all parameters but the MTP head's, exported as if they were the weights."""
    parameters = [parameter for chunk in model.unwrapped() for parameter in chunk.parameters()]
    kept = [parameter.data.clone() for parameter in parameters]
    for parameter in parameters:
        parameter.data.copy_(parameter.main_grad)
    found = {name: tensor.numpy().copy() for name, tensor in trainer.weights() if not name.startswith("mtp.")}
    for parameter, value in zip(parameters, kept, strict=True):
        parameter.data.copy_(value)
    return {name: gradient for name, gradient in found.items() if not name.endswith("e_score_correction_bias")}
