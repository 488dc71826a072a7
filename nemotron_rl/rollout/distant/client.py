"""The trainer side: an `Engine` whose work is done on other ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Self

from torch import Tensor

from nemotron_rl.config.rollout import SamplingSettings
from nemotron_rl.rollout.distant.bridge import Bridge, Channel
from nemotron_rl.rollout.distant.calls import Call, Failed, Generate, Score
from nemotron_rl.rollout.distant.places import shares
from nemotron_rl.rollout.engine import GenerateRequest, Response


class DistantEngine:
    """The engines of this rank's data-parallel replica, as one."""

    def __init__(
        self,
        bridge: Bridge,
        kind: Literal["reference", "sglang"],
        replica: int,
        replicas: int,
        once: Callable[[Callable[[], Any]], Any] = lambda ask: ask(),
    ) -> None:
        """`once(ask)` calls `ask` on one rank of the replica and gives what it returned to all of them."""
        self.bridge, self.kind, self._once = bridge, kind, once
        self._engines = bridge.places.engines_of(replica, replicas)
        self._sharing = sum(self._engines[0] in bridge.places.engines_of(other, replicas) for other in range(replicas))

    def generate(
        self, requests: Sequence[GenerateRequest], sampling: SamplingSettings, *, routes: bool = False
    ) -> list[Response]:
        """One response per request, in order; called on one rank of the replica.

        Every replica must call equally often: an engine may put their requests together.

        Raises:
            NemotronRLError: what the engine raised.
        """
        parts = shares(requests, len(self._engines))
        answers = self._ask([Generate(part, sampling, routes, self._sharing) for part in parts])
        return [response for answer in answers for response in answer]

    def score(self, sequences: Sequence[Sequence[int]]) -> list[Tensor]:
        """log p(token | prefix) of every token but the first; [len - 1] each. A collective call of the replica."""
        calls = [Score(part) for part in shares(sequences, len(self._engines))]
        answers: list[list[Tensor]] = self._once(lambda: self._ask(calls))
        return [score for answer in answers for score in answer]

    def sleep(self) -> None:
        """Nothing to give back: the engine has memory of its own."""

    def wake(self) -> None:
        """Nothing was given back."""

    def close(self) -> None:
        """Nothing is held here: engines end when the trainers leave the bridge."""

    def _ask(self, calls: Sequence[Call]) -> list[Any]:
        """The answers of this replica's engines, which work at the same time."""
        leaders = [self.bridge.places.leader(engine) for engine in self._engines]
        for leader, call in zip(leaders, calls, strict=True):
            self.bridge.send(call, leader, Channel.CALLS)
        answers = [self.bridge.receive(leader, Channel.ANSWERS) for leader in leaders]
        for answer in answers:
            if isinstance(answer, Failed):
                raise answer.error
        return answers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
