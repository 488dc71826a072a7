"""Off-policy weights and soft punishment with loops, as their sources write them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nemotron_rl.config.rl import OffPolicySettings


def weights(trainer: Sequence[float], engine: Sequence[float], settings: OffPolicySettings) -> list[float]:
    """Of the tokens of one response."""
    differences = [p - q for p, q in zip(trainer, engine, strict=True)]
    if settings.mismatch_max is not None:
        mean = sum(abs(d) for d in differences) / len(differences)
        if mean > settings.mismatch_max:
            return [0.0] * len(differences)
    out = []
    for difference in differences:
        ratio = math.exp(difference if settings.level == "token" else sum(differences))
        if settings.correction == "none":
            out.append(1.0)
        elif settings.correction == "truncate":
            out.append(max(settings.low, min(ratio, settings.high)))
        else:
            out.append(ratio if settings.low <= ratio <= settings.high else 0.0)
    return out


def overlong(length: int, longest: int, cache: int) -> float:
    if length <= longest - cache:
        return 0.0
    if length <= longest:
        return ((longest - cache) - length) / cache
    return -1.0
