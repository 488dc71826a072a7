"""What trainers say to engines on other ranks, and what these answer. It travels pickled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from nemotron_rl.config.rollout import SamplingSettings
from nemotron_rl.errors import NemotronRLError
from nemotron_rl.rollout.engine import GenerateRequest


@dataclass(frozen=True)
class Generate:
    """Answered with one response per request."""

    requests: Sequence[GenerateRequest]
    sampling: SamplingSettings
    routes: bool
    callers: int
    """Replicas that ask this engine at about the same time, this one included."""


@dataclass(frozen=True)
class Score:
    """Answered with log-probs per sequence."""

    sequences: Sequence[Sequence[int]]


@dataclass(frozen=True)
class Receive:
    """Weights follow on their own channel; every rank of the engine answers with a `Compared`."""

    version: int
    poison: bool
    """Whether to make all weights NaN before."""


@dataclass(frozen=True)
class Locate:
    """Answered with where a tensor differs from what one rank of the engine holds, in words."""

    rank: int
    name: str
    tensor: Tensor
    """As the trainer exported it."""


@dataclass(frozen=True)
class Leave:
    """This trainer will not call again; not answered."""


Call = Generate | Score | Receive | Locate | Leave


@dataclass(frozen=True)
class Compared:
    """What one rank of an engine holds after weights came."""

    names: frozenset[str]
    """Tensors whose checksums were compared."""
    differing: tuple[str, ...]
    """Those whose checksums differ, sorted."""
    seconds: float
    """That the comparison took."""


@dataclass(frozen=True)
class Failed:
    """The answer to a call that raised."""

    error: NemotronRLError


@dataclass(frozen=True)
class End:
    """All weights were sent."""

    checksums: Mapping[str, str]
    """Of each tensor, by name, taken of what the trainer exported."""


@dataclass(frozen=True)
class Broken:
    """The trainer could not go on sending weights."""

    reason: str
