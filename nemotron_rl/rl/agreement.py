"""How well trainer and engine agree on the log-probs of the sampled tokens."""

from __future__ import annotations

import numpy as np
from torch import Tensor


def agreement(difference_T: Tensor) -> dict[str, float]:
    """Differences `scored - sampled` of response tokens' log-probs, in nats, by metric name; at least one token.

    `abs_diff_*` are the largest, 99th-percentile and mean |difference|. `ratio_*` are of p_scored / p_sampled, which
    weights a token's gradient: the largest and smallest, and the mean, which is 1 in expectation whatever the two
    models are, so that another mean tells of tokens that were not drawn from the log-probs that came with them.
    `kl` is the k3 estimate of KL(sampled || scored): mean of ratio - 1 - log ratio (http://joschu.net/blog/kl-approx.html).
    """
    difference_T = difference_T.double()
    absolute_T, ratio_T = difference_T.abs(), difference_T.exp()
    return {
        "logprob/abs_diff_max": float(absolute_T.max()),
        # torch.quantile refuses more than 2^24 values, fewer than a large batch has tokens.
        "logprob/abs_diff_p99": float(np.quantile(absolute_T.numpy(force=True), 0.99)),
        "logprob/abs_diff_mean": float(absolute_T.mean()),
        "logprob/ratio_max": float(ratio_T.max()),
        "logprob/ratio_min": float(ratio_T.min()),
        "logprob/ratio_mean": float(ratio_T.mean()),
        "logprob/kl": float((difference_T.expm1() - difference_T).mean()),
    }
