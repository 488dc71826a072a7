"""What optimizer steps report, alone and together. No torch, no megatron."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean


@dataclass(frozen=True)
class MtpReport:
    """How well one depth of the head predicts, over the targets of all ranks."""

    loss: float
    """Mean cross-entropy in nats."""
    acceptance: float
    """Share of targets that the head finds most likely: what greedy speculative decoding would have accepted."""
    targets: int
    """Tokens of all ranks that both are taken over."""


@dataclass(frozen=True)
class Update:
    """What one update reports, equal on all ranks."""

    loss: float
    """Weighted loss per response token, without MTP."""
    grad_norm: float
    """Global L2 norm before clipping, without the MTP head's part, which megatron-core clips by itself."""
    lr: float
    """Learning rate of the step."""
    means: dict[str, float]
    """Means over response tokens of the loss terms' values, and figures of the update's routes and expert biases."""
    response_tokens: int
    """Tokens of responses of all ranks, over which means are taken."""
    tokens: int
    """Tokens of prompts and responses of all ranks; padding is none."""
    padding: float
    """Share of padding in what the model computed."""
    mtp: Mapping[int, MtpReport]
    """What each MTP depth, from 0, did; without those that had no target."""
    mtp_grad_norm: float | None
    """Global L2 norm of the MTP head's gradient before its clipping; None when it was not trained."""
    updates: int = 1
    """Optimizer steps that this sums up."""

    @property
    def mtp_loss(self) -> float | None:
        """Mean MTP cross-entropy in nats over all depths; None when no token was a target."""
        return fmean(one.loss for one in self.mtp.values()) if self.mtp else None

    def metrics(self, prefix: str) -> dict[str, float]:
        """The same under the names of the metrics file; no MTP loss rather than a made-up one."""
        named = {f"{prefix}/loss": self.loss, f"{prefix}/grad_norm": self.grad_norm, f"{prefix}/lr": self.lr}
        named |= {f"{prefix}/tokens": self.tokens, f"{prefix}/padding": self.padding, f"{prefix}/updates": self.updates}
        mtp = {f"{prefix}/mtp_loss": self.mtp_loss, f"{prefix}/mtp_grad_norm": self.mtp_grad_norm}
        for depth, one in self.mtp.items():
            mtp |= {f"{prefix}/mtp_loss_{depth + 1}": one.loss, f"{prefix}/mtp_acceptance_{depth + 1}": one.acceptance}
        return named | self.means | {name: value for name, value in mtp.items() if value is not None}


def summed_up(updates: Sequence[Update]) -> Update:
    """One report of several updates; of one, that one.

    Loss and gradient norms: the mean over updates, each of which is one over its own tokens. Means of tokens, such as
    the clip fraction: over the tokens of all updates; but the largest of what ends in `_max`. Learning rate: the last.
    Tokens: the sum.
    """
    if len(updates) == 1:
        return updates[0]
    response_tokens = [one.response_tokens for one in updates]
    tokens = [one.tokens for one in updates]
    mtp_norms = [one.mtp_grad_norm for one in updates if one.mtp_grad_norm is not None]
    return replace(
        updates[-1],
        loss=fmean(one.loss for one in updates),
        grad_norm=fmean(one.grad_norm for one in updates),
        means={name: _mean(name, [one.means[name] for one in updates], response_tokens) for name in updates[0].means},
        response_tokens=sum(response_tokens),
        tokens=sum(tokens),
        padding=1 - sum(tokens) / sum(one.tokens / (1 - one.padding) for one in updates),
        mtp=_mtp(updates),
        mtp_grad_norm=fmean(mtp_norms) if mtp_norms else None,
        updates=len(updates),
    )


def _mean(name: str, values: Sequence[float], weights: Sequence[int]) -> float:
    return max(values) if name.endswith("_max") else _weighted(values, weights)


def _mtp(updates: Sequence[Update]) -> dict[int, MtpReport]:
    reports: dict[int, list[MtpReport]] = {}
    for update in updates:
        for depth, report in update.mtp.items():
            reports.setdefault(depth, []).append(report)
    return {depth: _mtp_mean(found) for depth, found in sorted(reports.items())}


def _mtp_mean(reports: Sequence[MtpReport]) -> MtpReport:
    targets = [one.targets for one in reports]
    loss = _weighted((one.loss for one in reports), targets)
    return MtpReport(loss, _weighted((one.acceptance for one in reports), targets), sum(targets))


def _weighted(values: Iterable[float], weights: Sequence[int]) -> float:
    """The weighted mean; 0 when all weights are 0, where there is nothing to take a mean of."""
    return sum(v * w for v, w in zip(values, weights, strict=True)) / max(sum(weights), 1)
