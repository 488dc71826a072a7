"""The contract between the training loop and whatever generates samples. Token ids in, token ids out; never text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, Self

from torch import Tensor

from nemotron_rl.config.rollout import SamplingSettings


@dataclass(frozen=True)
class GenerateRequest:
    """One response to generate."""

    prompt: tuple[int, ...]
    """Token ids; at least one."""
    seed: int
    """With the same weights, prompt and sampling, equal seeds give equal responses, whatever else is in the batch."""


@dataclass(frozen=True)
class Response:
    """What an engine generated for one request."""

    tokens: tuple[int, ...]
    """Token ids; the stop token, when there is one, is the last."""
    logprobs: tuple[float, ...]
    """log p(token | prefix) of each, in nats, at the sampling temperature (1 when greedy), before top-p and top-k."""
    finish: Literal["stop", "length"]
    """Whether a stop token ended it, or the length."""
    routes: Tensor | None = field(default=None, compare=False)
    """Experts of the prompt's and response's tokens but the last, which was never run: int16 [tokens - 1, MoE layers of
    the trunk, experts per token]. None when not asked for."""


class Engine(Protocol):
    """A rollout engine; a context manager whose exit closes it. How its weights come is up to nemotron_rl/sync."""

    def generate(
        self, requests: Sequence[GenerateRequest], sampling: SamplingSettings, *, routes: bool = False
    ) -> list[Response]:
        """One response per request, in order; with `routes` each says which experts computed it.

        Raises:
            NemotronRLError: when the engine was not started to record routes.
        """
        ...

    def score(self, sequences: Sequence[Sequence[int]]) -> list[Tensor]:
        """log p(token | prefix) of every token but the first at temperature 1, in nats, by prefill; [len - 1] each."""
        ...

    def sleep(self) -> None:
        """Give memory back to the trainer; weights are undefined until the next sync."""
        ...

    def wake(self) -> None:
        """Take the memory again."""
        ...

    def close(self) -> None:
        """Release everything; a second call does nothing."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class CopyingEngine(Engine, Protocol):
    """An engine in the trainer's process, to which weights are handed tensor by tensor."""

    def receive(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Replace all weights by these, named as in the checkpoint.

        Raises:
            WeightMismatch: when a name is unknown, missing or given twice, or a shape is wrong.
        """
        ...

    def checksums(self) -> Mapping[str, str]:
        """Checksum by name of every weight, computed from the engine's own memory now."""
        ...

    def tensor(self, name: str) -> Tensor:
        """One weight as the engine holds it."""
        ...
