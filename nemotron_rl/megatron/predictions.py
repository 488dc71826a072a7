"""From hidden states to log-probs of the tokens that they predict, one token ahead or, for the MTP head, more.

B samples · L tokens of the longest · R rows of the model's input · s this rank's tokens of a row · H hidden size
N predicted tokens of this rank
"""

from __future__ import annotations

import torch
from torch import Tensor

from nemotron_rl.megatron.logprobs import TokenLogprobs
from nemotron_rl.megatron.micro_batch import MicroBatch
from nemotron_rl.megatron.modules.output_layer import DeferredOutputLayer
from nemotron_rl.rl.batch import ahead


def predicted(
    output_layer: DeferredOutputLayer,
    hidden_sRH: Tensor,
    micro_batch: MicroBatch,
    steps: int,
    *,
    temperature: float = 1.0,
    weight: Tensor | None = None,
) -> tuple[TokenLogprobs, Tensor]:
    """Log-probs that each position gives to the response token `steps` later, and which positions these are, [R, s].

    Prompt and padding tokens are predicted by nobody. Under sequence parallelism `hidden_sRH` is this rank's part of s.
    """
    batch = micro_batch.batch
    wanted_Rs = micro_batch.place(ahead(batch.mask_BL, steps)) > 0
    token_Rs = micro_batch.place(ahead(batch.tokens_BL, steps))
    found = output_layer.token_logprobs(hidden_sRH, token_Rs.T, wanted_Rs.T, temperature=temperature, weight=weight)
    return found, wanted_Rs


def response_logprobs(
    output_layer: DeferredOutputLayer, hidden_sRH: Tensor, micro_batch: MicroBatch, temperature: float
) -> Tensor:
    """log p(token t | tokens before t) in nats of every response token t, fp32 [B, L], 0 elsewhere; on every rank.

    A response that begins with the first token has no log-prob there, and 0.
    """
    found, wanted_Rs = predicted(output_layer, hidden_sRH, micro_batch, 1, temperature=temperature)
    # Row-major order of [s, R], as the output layer has it.
    logprob_sR = torch.zeros_like(wanted_Rs.T, dtype=torch.float32)
    logprob_sR = logprob_sR.index_put(torch.nonzero(wanted_Rs.T, as_tuple=True), found.logprob_N)
    logprob_BL = micro_batch.collect(logprob_sR.T)
    return torch.nn.functional.pad(logprob_BL[:, :-1], (1, 0))
