"""Accuracy and its confidence interval. Arithmetic only; generating the answers is the evaluate job's work."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

from nemotron_rl.config.base import Frozen
from nemotron_rl.errors import DataError

Z_95 = 1.959963984540054
"""97.5th percentile of the standard normal distribution."""


class ModelScore(Frozen):
    """How one checkpoint answered the held-out prompts."""

    accuracy: float
    """Mean reward over all samples, in [0, 1]."""
    correct: int
    """Samples with reward 1."""
    samples: int
    """Samples in all."""
    response_length_mean: float
    """Tokens per response."""

    @property
    def interval(self) -> tuple[float, float]:
        """95% confidence interval of the share of correct samples."""
        return wilson_interval(self.correct, self.samples)


class Evaluation(Frozen):
    """The content of `evaluation.json`."""

    models: dict[str, ModelScore]
    """Scores by checkpoint: `base`, `trained`."""

    @classmethod
    def read(cls, path: Path) -> Evaluation:
        """Read a file that `write` wrote. Raises DataError when it is missing or something else."""
        try:
            return cls.model_validate(json.loads(path.read_text()))
        except (OSError, ValueError) as error:
            raise DataError(f"cannot read the evaluation {path}: {error}") from error

    def write(self, path: Path) -> Path:
        """Write as JSON and return the path."""
        path.write_text(self.model_dump_json(indent=1) + "\n")
        return path


def score_samples(rewards: Sequence[float], response_lengths: Sequence[int]) -> ModelScore:
    """The score of one checkpoint from each sample's reward in [0, 1] and its length in tokens."""
    if not rewards or len(rewards) != len(response_lengths):
        raise ValueError(
            f"needs one length per reward and at least one, got {len(rewards)} and {len(response_lengths)}"
        )
    count = len(rewards)
    return ModelScore(
        accuracy=math.fsum(rewards) / count,
        correct=sum(reward >= 1 for reward in rewards),
        samples=count,
        response_length_mean=sum(response_lengths) / count,
    )


def wilson_interval(correct: int, samples: int, z: float = Z_95) -> tuple[float, float]:
    """Wilson's score interval of a proportion (JASA 22, 1927): sensible at 0, at 1 and for few samples.

    Several samples of one prompt are not independent; the interval is then narrower than it should be.
    """
    if samples < 1 or not 0 <= correct <= samples:
        raise ValueError(f"needs 0 <= correct <= samples and samples >= 1, got {correct} of {samples}")
    share = correct / samples
    scale = 1 + z * z / samples
    centre = (share + z * z / (2 * samples)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / samples + z * z / (4 * samples * samples))
    return max(0.0, centre - half), min(1.0, centre + half)
