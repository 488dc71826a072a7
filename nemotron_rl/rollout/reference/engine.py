"""The reference engine: prompts of unequal length in one batch, cached decoding, rows leave when they are done."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor

from nemotron_rl.config.rollout import SamplingSettings
from nemotron_rl.rl.routes import DTYPE
from nemotron_rl.rollout.engine import GenerateRequest, Response
from nemotron_rl.rollout.reference import model
from nemotron_rl.rollout.reference.cache import Cache
from nemotron_rl.rollout.reference.shape import NemotronHShape
from nemotron_rl.rollout.reference.weights import WeightTable
from nemotron_rl.rollout.sampling import sample, uniforms


@dataclass
class _Row:
    """A response under way."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: Literal["stop", "length"] = "length"
    routes: list[Tensor] = field(default_factory=list)
    """Of the tokens of each forward pass, [tokens, MoE layers, experts per token]; none when not asked for."""

    def response(self) -> Response:
        routes_TMK = torch.cat(self.routes) if self.routes else None
        return Response(tuple(self.tokens), tuple(self.logprobs), self.finish, routes_TMK)


class ReferenceEngine:
    """See `CopyingEngine`. Weights and arithmetic are fp32, in this process."""

    def __init__(
        self, config: Mapping[str, Any], stop_tokens: Sequence[int], *, max_batch: int = 256, pad_token: int = 0
    ) -> None:
        """`config` is the content of config.json; at most `max_batch` sequences are decoded at once."""
        self._shape = NemotronHShape.from_config(config)
        self._weights = WeightTable(config)
        self._stop_tokens = frozenset(stop_tokens)
        self._max_batch, self._pad_token = max_batch, pad_token

    @classmethod
    def from_folder(cls, folder: Path, stop_tokens: Sequence[int]) -> Self:
        """An engine without weights for the checkpoint or converted folder's config."""
        return cls(json.loads((folder / "config.json").read_text()), stop_tokens)

    @torch.inference_mode()
    def generate(
        self, requests: Sequence[GenerateRequest], sampling: SamplingSettings, *, routes: bool = False
    ) -> list[Response]:
        """One response per request, in order; sequences of similar length share a batch."""
        if self._weights.version is None:
            raise RuntimeError("the reference engine has no weights yet: call receive first")
        by_length = sorted(range(len(requests)), key=lambda i: len(requests[i].prompt))
        responses: dict[int, Response] = {}
        for first in range(0, len(by_length), self._max_batch):
            chosen = by_length[first : first + self._max_batch]
            batch = self._generate_batch([requests[i] for i in chosen], sampling, routes)
            responses.update(zip(chosen, batch, strict=True))
        return [responses[i] for i in range(len(requests))]

    def _generate_batch(
        self, requests: Sequence[GenerateRequest], sampling: SamplingSettings, routes: bool
    ) -> list[Response]:
        tokens_BL, valid_BL = left_padded([request.prompt for request in requests], self._pad_token)
        cache = Cache(self._shape, valid_BL, tokens_BL.shape[1] + sampling.max_new_tokens)
        uniform_BN = uniforms([request.seed for request in requests], sampling.max_new_tokens)
        rows = [_Row() for _ in requests]
        alive = torch.arange(len(rows))
        start = 0
        for n in range(sampling.max_new_tokens):
            hidden_BLD = model.forward(tokens_BL, self._weights, self._shape, cache)
            if routes and cache.experts:
                _record(rows, alive, cache.experts, cache.valid_BL[:, start : cache.length])
            start = cache.length
            token_B, logprob_B = sample(model.logits(hidden_BLD[:, -1], self._weights), uniform_BN[alive, n], sampling)
            going = self._append(rows, alive, token_B, logprob_B)
            if not len(going):
                break
            if len(going) < len(alive):
                cache.select(going)
            alive, tokens_BL = alive[going], token_B[going, None]
        return [row.response() for row in rows]

    def _append(self, rows: list[_Row], alive: Tensor, token_B: Tensor, logprob_B: Tensor) -> Tensor:
        """Append one token to each live row; the places in the batch of those that go on."""
        going = []
        for place, (row, token, logprob) in enumerate(
            zip(alive.tolist(), token_B.tolist(), logprob_B.tolist(), strict=True)
        ):
            rows[row].tokens.append(token)
            rows[row].logprobs.append(logprob)
            if token in self._stop_tokens:
                rows[row].finish = "stop"
            else:
                going.append(place)
        return torch.tensor(going, dtype=torch.long)

    @torch.inference_mode()
    def score(self, sequences: Sequence[Sequence[int]]) -> list[Tensor]:
        """log p(token | prefix) of every token but the first, in nats, by one pass without decoding; [len - 1] each."""
        scores = []
        for sequence in sequences:
            tokens_BL = torch.tensor([list(sequence)])
            cache = Cache(self._shape, torch.ones_like(tokens_BL, dtype=torch.bool), tokens_BL.shape[1])
            hidden_BLD = model.forward(tokens_BL, self._weights, self._shape, cache)
            logprob_LV = model.logits(hidden_BLD[0, :-1], self._weights).log_softmax(-1)
            scores.append(logprob_LV.gather(-1, tokens_BL[0, 1:, None]).squeeze(-1))
        return scores

    def receive(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Copy all weights in; see `CopyingEngine.receive`."""
        with torch.no_grad():
            self._weights.receive(weights, version)

    def checksums(self) -> Mapping[str, str]:
        """Checksum of every weight as it lies in memory."""
        return self._weights.checksums()

    def tensor(self, name: str) -> Tensor:
        """One weight."""
        return self._weights[name]

    def sleep(self) -> None:
        """Nothing to give back: trainer and engine fit beside each other in a CPU's memory."""

    def wake(self) -> None:
        """Nothing was given back."""

    def close(self) -> None:
        """Nothing is held outside this object."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _record(rows: Sequence[_Row], alive: Tensor, experts: Sequence[Tensor], valid_BL: Tensor) -> None:
    """Give each live row the routes of its own tokens of the last pass, without those of padding."""
    routes_BLMK = torch.stack(list(experts), 2).to(DTYPE)
    for row, routes_LMK, valid_L in zip(alive.tolist(), routes_BLMK, valid_BL, strict=True):
        rows[row].routes.append(routes_LMK[valid_L])


def left_padded(prompts: Sequence[Sequence[int]], pad_token: int) -> tuple[Tensor, Tensor]:
    """Token ids and validity, [B, L], padded on the left to the longest prompt."""
    longest = max(map(len, prompts))
    tokens_BL = torch.full((len(prompts), longest), pad_token)
    valid_BL = torch.zeros(len(prompts), longest, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        tokens_BL[row, longest - len(prompt) :] = torch.tensor(prompt)
        valid_BL[row, longest - len(prompt) :] = True
    return tokens_BL, valid_BL
