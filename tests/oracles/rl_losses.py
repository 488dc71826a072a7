"""Policy losses of one response with loops over tokens, and their gradients, as the papers write them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Row = Sequence[float]
Loss = Callable[[Row, Row, float, float, float, float], list[float]]
"""(log-probs, old log-probs, advantage, clip_low, clip_high, clip_dual) -> a number per token."""


def _clip(value: float, low: float, high: float) -> float:
    return min(max(value, 1 - low), 1 + high)


def grpo(new: Row, old: Row, advantage: float, low: float, high: float, _: float) -> list[float]:
    losses = []
    for p, q in zip(new, old, strict=True):
        ratio = math.exp(p - q)
        losses.append(-min(ratio * advantage, _clip(ratio, low, high) * advantage))
    return losses


def dual_clip(new: Row, old: Row, advantage: float, low: float, high: float, dual: float) -> list[float]:
    losses = []
    for p, q in zip(new, old, strict=True):
        ratio = math.exp(p - q)
        gain = min(ratio * advantage, _clip(ratio, low, high) * advantage)
        losses.append(-max(gain, dual * advantage) if advantage < 0 else -gain)
    return losses


def gspo(new: Row, old: Row, advantage: float, low: float, high: float, _: float) -> list[float]:
    ratio = math.exp(sum(p - q for p, q in zip(new, old, strict=True)) / len(new))
    return [-min(ratio * advantage, _clip(ratio, low, high) * advantage) for _ in new]


def cispo(new: Row, old: Row, advantage: float, low: float, high: float, _: float) -> list[float]:
    return [-_clip(math.exp(p - q), low, high) * advantage * p for p, q in zip(new, old, strict=True)]


def reinforce(new: Row, old: Row, advantage: float, low: float, high: float, _: float) -> list[float]:
    return [-advantage * p for p in new]


def cispo_gradient(new: Row, old: Row, advantage: float, low: float, high: float, _: float) -> list[float]:
    """By hand, for the weight has no gradient."""
    return [-_clip(math.exp(p - q), low, high) * advantage for p, q in zip(new, old, strict=True)]


def differences(loss: Loss, step: float = 1e-6) -> Loss:
    """The gradient of the summed loss with respect to each log-prob, by central differences."""

    def gradient(new: Row, old: Row, *rest: float) -> list[float]:
        def moved(token: int, by: float) -> float:
            return sum(loss([p + by * (t == token) for t, p in enumerate(new)], old, *rest))

        return [(moved(t, step) - moved(t, -step)) / (2 * step) for t in range(len(new))]

    return gradient


LOSSES: dict[str, Loss] = {"cispo": cispo, "dual_clip": dual_clip, "grpo": grpo, "gspo": gspo, "reinforce": reinforce}
GRADIENTS: dict[str, Loss] = {name: differences(loss) for name, loss in LOSSES.items()} | {"cispo": cispo_gradient}


def reduced(rows: Sequence[Sequence[float]], aggregation: str, constant: float) -> float:
    """The mean of losses per token that an aggregation stands for."""
    if aggregation == "token":
        return sum(sum(row) for row in rows) / sum(len(row) for row in rows)
    if aggregation == "sequence":
        return sum(sum(row) / len(row) for row in rows) / len(rows)
    return sum(sum(row) / constant for row in rows) / len(rows)
