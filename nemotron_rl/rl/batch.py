"""Samples as tensors. Everything is aligned with the tokens: entry t of a log-prob is that of token t itself.

B samples · L tokens · M mixture-of-experts layers · K experts per token
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import torch
from torch import Tensor

from nemotron_rl.rl.routes import stack_routes


@dataclass(frozen=True)
class TokenSequence:
    """A prompt and its response, as token ids."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]
    response_logprobs: tuple[float, ...] = ()
    """Of the engine; empty for supervised documents."""
    routes: Tensor | None = field(default=None, compare=False)
    """Experts of all tokens but the last, int16 [tokens - 1, M, K], where the engine recorded them."""


@dataclass(frozen=True)
class Batch:
    """Right-padded samples of one data-parallel rank."""

    tokens_BL: Tensor
    """Token ids, int64."""
    mask_BL: Tensor
    """1.0 at response tokens, else 0.0."""
    rollout_logprob_BL: Tensor
    """Log-probs from the engine; 0 outside the response."""
    advantage_BL: Tensor
    """Advantage of each response token."""
    old_logprob_BL: Tensor
    """Log-probs from the trainer before the update; 0 outside the response."""
    reference_logprob_BL: Tensor
    """Log-probs from the reference model; 0 where there is none."""
    weight_BL: Tensor
    """Weight of each token's loss; see `token_weights`."""
    routes_BLMK: Tensor | None = None
    """Experts that the engine chose, int16, NO_ROUTE where there is no record; None: the trainer routes for itself."""

    def with_(self, **tensors: Any) -> Batch:
        """A copy with some tensors replaced."""
        return replace(self, **tensors)

    @property
    def length_B(self) -> Tensor:
        """Tokens of each sample up to the last one of its response, at least 1; what follows is padding. int64 [B]."""
        place_L = torch.arange(1, self.mask_BL.shape[1] + 1, device=self.mask_BL.device)
        return torch.where(self.mask_BL > 0, place_L, 1).amax(1)

    def map(self, function: Callable[[Tensor], Tensor]) -> Batch:
        """A copy with every tensor replaced by what `function` makes of it."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{name: function(tensor) for name, tensor in tensors.items() if tensor is not None})

    def to(self, device: torch.device) -> Batch:
        """A copy on the device. Routes stay where they are: they are large, and moved a micro-batch at a time."""
        return self.map(lambda tensor: tensor.to(device)).with_(routes_BLMK=self.routes_BLMK)

    def micro_batches(self, size: int) -> Iterator[Batch]:
        """Consecutive groups of `size` samples; the last may be smaller."""
        for first in range(0, len(self.tokens_BL), size):
            rows = slice(first, first + size)
            yield self.map(lambda tensor, rows=rows: tensor[rows])  # type: ignore[misc]


def ahead(values_BL: Tensor, tokens: int) -> Tensor:
    """At position t the value of position t + `tokens`; 0 where that is beyond the end."""
    moved_BL = torch.zeros_like(values_BL)
    moved_BL[:, : max(values_BL.shape[1] - tokens, 0)] = values_BL[:, tokens:]
    return moved_BL


def make_batch(sequences: Sequence[TokenSequence], pad_token: int, multiple: int = 1) -> Batch:
    """The batch of these sequences; its length is a multiple of `multiple`, as tensor and context parallelism need."""
    longest = max(len(s.prompt) + len(s.response) for s in sequences)
    shape = (len(sequences), -(-longest // multiple) * multiple)
    tokens_BL = torch.full(shape, pad_token)
    mask_BL, rollout_logprob_BL = torch.zeros(shape), torch.zeros(shape)
    for row, sequence in enumerate(sequences):
        start, stop = len(sequence.prompt), len(sequence.prompt) + len(sequence.response)
        tokens_BL[row, :stop] = torch.tensor([*sequence.prompt, *sequence.response])
        mask_BL[row, start:stop] = 1.0
        if sequence.response_logprobs:
            rollout_logprob_BL[row, start:stop] = torch.tensor(sequence.response_logprobs)
    zeros = torch.zeros(shape)
    routes_BLMK = stack_routes([s.routes for s in sequences], shape[1])
    return Batch(tokens_BL, mask_BL, rollout_logprob_BL, zeros, zeros, zeros, mask_BL, routes_BLMK)


def token_weights(
    mask_BL: Tensor,
    aggregation: Literal["sequence", "token", "constant"],
    tokens: float,
    samples: float,
    *,
    divisor: float | None = None,
    constant_length: float = 1.0,
) -> Tensor:
    """Weights [B, L] whose weighted sum of losses, over all ranks and divided by `divisor`, is the wanted mean.

    `tokens` and `samples` count what the mask keeps on all data-parallel ranks; `divisor` is what the trainer divides
    by, and need only be given when it is more than `tokens`. `token`: mean over all tokens (DAPO, arXiv 2503.14476,
    equation 8). `sequence`: mean over samples of their means over tokens (GRPO, arXiv 2402.03300, equation 3).
    `constant`: mean over samples of their sums over `constant_length` (Dr. GRPO, arXiv 2503.20783, section 3.2).
    """
    divisor = tokens if divisor is None else divisor
    if aggregation == "token":
        return mask_BL if divisor == tokens else mask_BL * divisor / max(tokens, 1.0)
    samples = max(samples, 1.0)  # none is kept: all weights are 0
    if aggregation == "constant":
        return mask_BL * divisor / (samples * constant_length)
    length_B1 = mask_BL.sum(-1, keepdim=True).clamp(min=1)
    return mask_BL * divisor / (samples * length_B1)
