"""Log-probs of tokens from logits that may be split over tensor-parallel ranks.

B samples · L tokens · V vocabulary, or this rank's part of it
"""

from __future__ import annotations

import torch
from megatron.core.tensor_parallel import vocab_parallel_cross_entropy
from torch import Tensor


def token_logprobs(logits_BLV: Tensor, tokens_BL: Tensor, temperature: float = 1.0) -> Tensor:
    """log p(token t | tokens before t) in nats, fp32 [B, L], on every tensor-parallel rank; 0 for the first token."""
    scaled_LBV = logits_BLV[:, :-1].transpose(0, 1).float() / temperature
    loss_LB = vocab_parallel_cross_entropy(scaled_LBV.contiguous(), tokens_BL[:, 1:].T.contiguous())
    first_B1 = torch.zeros_like(tokens_BL[:, :1], dtype=torch.float32)
    return torch.cat([first_B1, -loss_LB.T], 1)
