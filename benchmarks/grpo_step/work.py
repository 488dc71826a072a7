"""What both sides are given, and what they give back. It imports no torch, so that each side's process can load it.

B samples
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

CLIP_LOW, CLIP_HIGH, CLIP_GRAD = 0.2, 0.28, 1.0
LEARNING_RATE, BETAS, EPS = 1e-6, (0.9, 0.95), 1e-8
DRIFT = 0.3
"""Standard deviation in nats of old log-probs around those of a uniform model, to which a random one is close.

It is enough for both clips to bind at some tokens.
"""


@dataclass(frozen=True)
class Shape:
    """Lengths of the samples, drawn evenly between two bounds."""

    samples: int
    prompt: tuple[int, int]
    response: tuple[int, int]

    @property
    def longest(self) -> int:
        """Tokens that no sample exceeds."""
        return self.prompt[1] + self.response[1]


@dataclass(frozen=True)
class Sample:
    """A prompt and its response as token ids, and what the loss needs to know of it."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]
    advantage: float
    old_logprobs: tuple[float, ...]
    """Of the response before the update, in nats."""


@dataclass(frozen=True)
class Work:
    """One update."""

    start: Path
    """The checkpoint."""
    samples: tuple[Sample, ...]
    micro_batch_size: int
    threads: int

    @property
    def tokens(self) -> int:
        """Tokens of prompts and responses; padding is none."""
        return sum(len(sample.prompt) + len(sample.response) for sample in self.samples)


@dataclass(frozen=True)
class FirstUpdate:
    """What the first update, from the starting weights, came to."""

    loss: float
    """Mean over response tokens."""
    gradients: Mapping[str, Array]
    """After clipping, under the names of the checkpoint's tensors."""


def made_up_samples(shape: Shape, vocabulary: int, seed: int = 0) -> tuple[Sample, ...]:
    """Random tokens, advantages and log-probs before the update: none changes what an update costs."""
    draw = random.Random(seed)
    uniform = -math.log(vocabulary)

    def tokens(bounds: tuple[int, int]) -> tuple[int, ...]:
        return tuple(draw.randrange(12, vocabulary) for _ in range(draw.randint(*bounds)))

    def sample() -> Sample:
        prompt, response = tokens(shape.prompt), tokens(shape.response)
        return Sample(prompt, response, draw.gauss(0, 1), tuple(draw.gauss(uniform, DRIFT) for _ in response))

    return tuple(sample() for _ in range(shape.samples))


def largest_difference(ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> float:
    """The worst of max |a - b| / max |b| over all tensors of both; NaN when there is one.

    Raises:
        ValueError: The sides have different tensors, or TRL has no gradient at all for one.
    """
    if ours.keys() != theirs.keys():
        raise ValueError(f"gradients of different tensors: {sorted(ours.keys() ^ theirs.keys())[:5]}")
    differences: list[float] = []
    for name, gradient in theirs.items():
        if not (largest := float(np.abs(gradient).max())):
            raise ValueError(f"{name} has no gradient")
        differences.append(float(np.abs(ours[name] - gradient).max()) / largest)
    return float(np.max(differences))  # NaN, if one is
