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
    entropy: bool = False,
    weight: Tensor | None = None,
) -> tuple[TokenLogprobs, Tensor]:
    """Log-probs that each position gives to the response token `steps` later, and which positions these are, [R, s].

    Prompt and padding tokens are predicted by nobody. Under sequence parallelism `hidden_sRH` is this rank's part of s.
    """
    batch = micro_batch.batch
    wanted_Rs = micro_batch.place(ahead(batch.mask_BL, steps)) > 0
    token_Rs = micro_batch.place(ahead(batch.tokens_BL, steps))
    found = output_layer.token_logprobs(
        hidden_sRH, token_Rs.T, wanted_Rs.T, temperature=temperature, entropy=entropy, weight=weight
    )
    return found, wanted_Rs


def response_logprobs(
    output_layer: DeferredOutputLayer, hidden_sRH: Tensor, micro_batch: MicroBatch, temperature: float
) -> Tensor:
    """log p(token t | tokens before t) in nats of every response token t, fp32 [B, L], 0 elsewhere; on every rank.

    A response that begins with the first token has no log-prob there, and 0.
    """
    found, wanted_Rs = predicted(output_layer, hidden_sRH, micro_batch, 1, temperature=temperature)
    return _at_predicted_tokens(found.logprob_N, wanted_Rs, micro_batch)


def response_logprobs_and_entropy(
    output_layer: DeferredOutputLayer, hidden_sRH: Tensor, micro_batch: MicroBatch, temperature: float
) -> tuple[Tensor, Tensor]:
    """The same, and the entropy in nats of the distribution that each token was drawn from, [B, L], 0 elsewhere.

    Both have a gradient. It is the entropy over the whole vocabulary, whatever a sampler left out.
    """
    found, wanted_Rs = predicted(output_layer, hidden_sRH, micro_batch, 1, temperature=temperature, entropy=True)
    assert found.entropy_N is not None  # as asked for
    logprob_BL = _at_predicted_tokens(found.logprob_N, wanted_Rs, micro_batch)
    return logprob_BL, _at_predicted_tokens(found.entropy_N, wanted_Rs, micro_batch)


def _at_predicted_tokens(value_N: Tensor, wanted_Rs: Tensor, micro_batch: MicroBatch) -> Tensor:
    """Values of the wanted positions, at the tokens one place later: [B, L] on every rank, 0 elsewhere."""
    # Row-major order of [s, R], as the output layer has it.
    value_sR = torch.zeros_like(wanted_Rs.T, dtype=torch.float32)
    value_sR = value_sR.index_put(torch.nonzero(wanted_Rs.T, as_tuple=True), value_N)
    value_BL = micro_batch.collect(value_sR.T)
    return torch.nn.functional.pad(value_BL[:, :-1], (1, 0))
