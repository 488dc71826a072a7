"""Policy losses by name. A new one is a file here, a line in `_MODULES` and a choice in `AlgorithmSettings`.

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
    """Loss of each token; finite, and without weight, outside the response."""
    means: dict[str, Tensor] = field(default_factory=dict)
    """Metric name to a value per token [B, L]; the mean over response tokens is reported."""


PolicyLoss = Callable[[Tensor, Tensor, Tensor, Tensor, AlgorithmSettings], LossTerms]
"""(logprob_BL, old_logprob_BL, advantage_BL, mask_BL, settings) -> terms; log-probs in nats, the first with gradient.

The mask is 1 at response tokens. A row's terms depend on that row only, so that micro-batches change nothing. The
loss scales with the advantages: loss(c A) = c loss(A) for c >= 0, so that a weight per token can be put on them.
"""

_MODULES = {
    "cispo": "nemotron_rl.rl.losses.cispo",
    "dual_clip": "nemotron_rl.rl.losses.dual_clip",
    "grpo": "nemotron_rl.rl.losses.grpo",
    "gspo": "nemotron_rl.rl.losses.gspo",
    "reinforce": "nemotron_rl.rl.losses.reinforce",
}


def policy_loss(name: str) -> PolicyLoss:
    """The loss registered under `name`: the function `loss` of its module."""
    loss: PolicyLoss = importlib.import_module(_MODULES[name]).loss
    return loss


def policy_loss_names() -> list[str]:
    """All registered names."""
    return sorted(_MODULES)
