"""How well trainer and engine agree on the log-probs of the sampled tokens."""

from __future__ import annotations

import torch
from torch import Tensor


def agreement(difference_T: Tensor) -> dict[str, float]:
    """Largest, 99th-percentile and mean |trainer - engine| over response tokens, in nats, by metric name."""
    absolute_T = difference_T.double().abs()
    return {
        "logprob/abs_diff_max": float(absolute_T.max()),
        "logprob/abs_diff_p99": float(torch.quantile(absolute_T, 0.99)),
        "logprob/abs_diff_mean": float(absolute_T.mean()),
    }
