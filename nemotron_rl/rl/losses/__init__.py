"""Policy losses by name. A new one is a file here and a line in `_MODULES`.

B samples · L tokens
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from nemotron_rl.config.rl import AlgorithmSettings


@dataclass(frozen=True)
class LossTerms:
    """A loss before its reduction."""

    loss_BL: Tensor
    """Loss of each token; entries outside the response are never read."""
    means: dict[str, Tensor] = field(default_factory=dict)
    """Metric name to a value per token [B, L]; the mean over response tokens is reported."""


PolicyLoss = Callable[[Tensor, Tensor, Tensor, AlgorithmSettings], LossTerms]
"""(logprob_BL, old_logprob_BL, advantage_BL, settings) -> terms; log-probs in nats, the first with gradient."""

_MODULES = {"grpo": "nemotron_rl.rl.losses.grpo"}


def policy_loss(name: str) -> PolicyLoss:
    """The loss registered under `name`: the function `loss` of its module."""
    loss: PolicyLoss = importlib.import_module(_MODULES[name]).loss
    return loss


def policy_loss_names() -> list[str]:
    """All registered names."""
    return sorted(_MODULES)
