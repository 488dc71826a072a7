"""The entropy bonus token by token: value, gradient, and what is reported."""

from __future__ import annotations

import math

import pytest
import torch

from nemotron_rl.config.rl import AlgorithmSettings
from nemotron_rl.rl.batch import TokenSequence, make_batch
from nemotron_rl.rl.entropy import METRIC, with_entropy
from nemotron_rl.rl.losses import LossTerms
from nemotron_rl.rl.objective import policy_objective

PROBABILITIES = [[[0.5, 0.25, 0.25], [1 / 3] * 3], [[0.9, 0.05, 0.05], [0.2, 0.2, 0.6]]]


def entropy_of(probabilities: list[float]) -> float:
    return -sum(p * math.log(p) for p in probabilities)


def test_each_tokens_loss_is_lowered_by_so_many_times_its_entropy() -> None:
    loss_BL = torch.tensor([[1.0, -2.0], [0.5, 0.0]], dtype=torch.float64)
    entropy_BL = torch.tensor([[entropy_of(one) for one in row] for row in PROBABILITIES], dtype=torch.float64)
    got = with_entropy(LossTerms(loss_BL, {"other": loss_BL}), entropy_BL, 0.3)
    for b, row in enumerate(PROBABILITIES):
        for token, one in enumerate(row):
            want = float(loss_BL[b, token]) - 0.3 * entropy_of(one)
            assert float(got.loss_BL[b, token]) == pytest.approx(want, rel=1e-12)
    assert got.means.keys() == {"other", METRIC}
    assert torch.equal(got.means[METRIC], entropy_BL)


def test_the_gradient_is_that_of_the_entropy() -> None:
    logits_BLV = torch.randn(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def total(logits_BLV: torch.Tensor) -> torch.Tensor:
        logprob_BLV = logits_BLV.log_softmax(-1)
        entropy_BL = -(logprob_BLV.exp() * logprob_BLV).sum(-1)
        return with_entropy(LossTerms(-logprob_BLV[..., 0]), entropy_BL, 0.3).loss_BL

    assert torch.autograd.gradcheck(total, logits_BLV.requires_grad_())
    # d entropy / d logit = -p (log p + entropy), by hand.
    logprob_BLV = logits_BLV.detach().log_softmax(-1)
    entropy_BL1 = -(logprob_BLV.exp() * logprob_BLV).sum(-1, keepdim=True)
    by_hand = 0.3 * logprob_BLV.exp() * (logprob_BLV + entropy_BL1) + logprob_BLV.exp()
    by_hand[..., 0] -= 1
    (gradient,) = torch.autograd.grad(total(logits_BLV).sum(), logits_BLV)
    torch.testing.assert_close(gradient, by_hand)


def test_without_a_weight_the_loss_is_untouched_and_the_entropy_reported_without_gradient() -> None:
    loss_BL, entropy_BL = torch.ones(1, 2), torch.full((1, 2), math.inf, requires_grad=True)
    got = with_entropy(LossTerms(loss_BL), entropy_BL, 0.0)
    assert torch.equal(got.loss_BL, loss_BL)
    assert not got.means[METRIC].requires_grad


def test_it_adds_to_every_other_term_of_the_objective() -> None:
    batch = make_batch([TokenSequence((1,), (2, 3))], 0)
    batch = batch.with_(reference_logprob_BL=-batch.mask_BL, old_logprob_BL=-batch.mask_BL)
    terms = policy_objective(AlgorithmSettings(kl_coef=0.5))(-2 * batch.mask_BL, batch)
    got = with_entropy(terms, torch.full_like(batch.mask_BL, 2.0), 0.25)
    torch.testing.assert_close(got.loss_BL, terms.loss_BL - 0.5)
    assert got.means.keys() == terms.means.keys() | {METRIC}
