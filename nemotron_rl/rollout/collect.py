"""Prompts to scored samples: chat template, generation, decoding, reward."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from nemotron_rl.checkpoint.tokenizer import ChatTokenizer
from nemotron_rl.config.rollout import SamplingSettings
from nemotron_rl.data.prompts import Prompt
from nemotron_rl.rl.batch import TokenSequence
from nemotron_rl.rollout.engine import Engine, GenerateRequest, Response

Reward = Callable[[str, str], float]
"""(response text, label) -> reward."""


@dataclass(frozen=True)
class Sample:
    """A scored response."""

    prompt_index: int
    """Place of the prompt in its set."""
    sequence: TokenSequence
    """Token ids, and log-probs of the response."""
    text: str
    """The response, special tokens left out; for the reward and for people, never tokenized again."""
    reward: float
    finish: Literal["stop", "length"]


class Collector:
    """Generates and scores samples of one prompt set with one engine."""

    def __init__(
        self,
        engine: Engine,
        tokenizer: ChatTokenizer,
        prompts: Sequence[Prompt],
        reward: Reward,
        *,
        samples_per_prompt: int,
        sampling: SamplingSettings,
        seed: int,
        routes: bool = False,
    ) -> None:
        """With `routes` the samples say which experts computed their tokens."""
        self._engine, self._tokenizer, self._prompts, self._reward = engine, tokenizer, prompts, reward
        self._samples_per_prompt, self._sampling, self._seed = samples_per_prompt, sampling, seed
        self._routes = routes

    @property
    def pad_token(self) -> int:
        """Token id that fills batches."""
        return self._tokenizer.pad_token_id

    def collect(self, indices: Sequence[int], step: int) -> list[Sample]:
        """The samples of each prompt, in the order of `indices`.

        A sample depends on the weights, its prompt, the seed, the step and its number, not on the other samples.
        """
        encoded = {index: self._encode(index) for index in set(indices)}
        wanted = [(index, k) for index in indices for k in range(self._samples_per_prompt)]
        requests = [GenerateRequest(encoded[i], sample_seed(self._seed, step, i, k)) for i, k in wanted]
        responses = self._engine.generate(requests, self._sampling, routes=self._routes)
        return [
            self._scored(index, request, response)
            for (index, _), request, response in zip(wanted, requests, responses, strict=True)
        ]

    def _scored(self, index: int, request: GenerateRequest, response: Response) -> Sample:
        text = self._tokenizer.decode(response.tokens)
        sequence = TokenSequence(request.prompt, response.tokens, response.logprobs, response.routes)
        return Sample(index, sequence, text, self._reward(text, self._prompts[index].label), response.finish)

    def _encode(self, index: int) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode_chat(self._prompts[index].chat()))


def sample_seed(seed: int, step: int, prompt: int, sample: int) -> int:
    """A 63-bit seed that no other (step, prompt, sample) of the run shares but by chance."""
    digest = hashlib.blake2b(f"{seed}/{step}/{prompt}/{sample}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
