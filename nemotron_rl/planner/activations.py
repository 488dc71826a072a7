"""What the backward pass of one micro-batch needs, per token and block type: an estimate for fused kernels.

H hidden · Q, K query and key width · P rows of in_proj · C convolution channels · D mamba inner width · I dense width
N experts · J expert width · X expert input width · S shared expert's width: as in `checkpoint.tensor_table`
"""

from __future__ import annotations

from collections.abc import Mapping

LOGITS_CHUNK_BYTES = 64 * 2**20
"""nemotron_rl.megatron.logprobs.CHUNK_BYTES, which cannot be imported without torch."""
LOGITS_BUFFERS = 3
"""Chunks of logits that exist at once in the log-prob pass; measured in benchmarks/logprobs.py."""


def bytes_per_token(block: str, sizes: Mapping[str, int], experts_per_token: int, tp: int, itemsize: int) -> float:
    """Bytes that one layer keeps per token for its backward pass, on one rank, without recomputation.

    Counted are the inputs of matrix products and of kernels that are not recomputed: Korthikanti et al., "Reducing
    activation recomputation" (arXiv 2205.05198), section 4, with sequence parallelism, so that everything is divided by
    tp. Flash attention and the Mamba kernels keep their inputs and outputs only.
    """
    h = sizes["H"]
    if block == "M":  # layer input, normed input, in_proj's output, conv's output, scan's output, gated norm's output
        elements = 2 * h + sizes["P"] + sizes["C"] + 2 * sizes["D"]
    elif block == "*":  # layer input, normed input, q, k, v, attention's output
        elements = 2 * h + 2 * sizes["Q"] + 2 * sizes["K"]
    elif block == "-":  # layer input, normed input, before and after the activation
        elements = 2 * h + 2 * sizes["I"]
    else:  # the same for each chosen expert and the shared one; router probabilities in fp32; the combined output
        routed = experts_per_token * (2 * sizes["X"] + 2 * sizes["J"])
        elements = 3 * h + 2 * sizes["S"] + routed + sizes["X"]
        return (elements * itemsize + 4 * sizes["N"]) / tp
    return elements * itemsize / tp


def logprob_bytes(vocabulary: int, hidden: int, tp: int, tokens: int) -> float:
    """The log-prob pass on the last stage: chunks of logits, and fp32 gradients of head and hidden states."""
    return LOGITS_BUFFERS * LOGITS_CHUNK_BYTES + 4 * hidden * (vocabulary / tp + tokens)
