"""Every registered policy loss: against loops and finite differences, on-policy, padded and split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nemotron_rl.config.rl import AlgorithmSettings
from nemotron_rl.rl.batch import TokenSequence, make_batch, token_weights
from nemotron_rl.rl.losses import policy_loss, policy_loss_names
from tests.oracles import rl_losses as oracle

CLIPS = (0.2, 0.28, 1.5)
ALGORITHM = AlgorithmSettings(clip_low=CLIPS[0], clip_high=CLIPS[1], clip_dual=CLIPS[2])
FEW = settings(max_examples=25)  # examples, for each is run for every registered name
NAMES = pytest.mark.parametrize("name", policy_loss_names())
LENGTHS = st.lists(st.integers(1, 6), min_size=1, max_size=5)


@dataclass(frozen=True)
class Case:
    """Responses of these lengths after prompts of two tokens, in fp64."""

    lengths: list[int]
    new_BL: Tensor
    old_BL: Tensor
    advantage_B: Tensor
    mask_BL: Tensor

    @classmethod
    def drawn(cls, lengths: list[int], seed: int, apart: float = 0.5, pad: int = 0) -> Case:
        mask_BL = make_batch([TokenSequence((1, 2), (3,) * length) for length in lengths], 0).mask_BL.double()
        mask_BL = torch.nn.functional.pad(mask_BL, (0, pad))
        new_BL, old_BL = torch.zeros_like(mask_BL), torch.zeros_like(mask_BL)
        generator = torch.Generator().manual_seed(seed)
        for row, length in enumerate(lengths):
            tokens = slice(2, 2 + length)
            new_BL[row, tokens] = -3 * torch.rand(length, generator=generator, dtype=torch.float64) - 0.1
            noise = torch.randn(length, generator=generator, dtype=torch.float64)
            old_BL[row, tokens] = new_BL[row, tokens] - apart * noise
        advantage_B = torch.randn(len(lengths), generator=generator, dtype=torch.float64)
        return cls(lengths, new_BL, old_BL, advantage_B, mask_BL)

    def rows(self, values_BL: Tensor) -> list[list[float]]:
        return [values_BL[row, 2 : 2 + length].tolist() for row, length in enumerate(self.lengths)]

    def loss(self, name: str, logprob_BL: Tensor, rows: slice = slice(None)) -> Tensor:
        advantage_BL = self.advantage_B[:, None] * self.mask_BL
        mask_BL = self.mask_BL[rows]
        terms = policy_loss(name)(logprob_BL[rows], self.old_BL[rows], advantage_BL[rows], mask_BL, ALGORITHM)
        return terms.loss_BL * mask_BL

    def loss_and_gradient(self, name: str) -> tuple[Tensor, Tensor]:
        logprob_BL = self.new_BL.clone().requires_grad_()
        loss_BL = self.loss(name, logprob_BL)
        (gradient_BL,) = torch.autograd.grad(loss_BL.sum(), logprob_BL)
        return loss_BL.detach(), gradient_BL


def test_registry_and_settings_offer_the_same_names() -> None:
    assert policy_loss_names() == sorted(get_args(AlgorithmSettings.model_fields["name"].annotation))


@NAMES
@FEW
@given(lengths=LENGTHS, seed=st.integers(0, 9999))
def test_loss_and_gradient_are_those_of_the_loop(name: str, lengths: list[int], seed: int) -> None:
    case = Case.drawn(lengths, seed)
    loss_BL, gradient_BL = case.loss_and_gradient(name)
    inputs = list(zip(case.rows(case.new_BL), case.rows(case.old_BL), case.advantage_B.tolist(), strict=True))
    assert case.rows(loss_BL) == [pytest.approx(oracle.LOSSES[name](*each, *CLIPS)) for each in inputs]
    want = [pytest.approx(oracle.GRADIENTS[name](*each, *CLIPS), rel=1e-5, abs=1e-7) for each in inputs]
    assert case.rows(gradient_BL) == want


@pytest.mark.parametrize("name", [name for name in policy_loss_names() if name not in ("gspo", "cispo")])
def test_gradcheck_of_the_losses_without_a_stopped_gradient(name: str) -> None:
    case = Case.drawn([3, 5, 1], seed=4)
    assert torch.autograd.gradcheck(lambda logprob_BL: case.loss(name, logprob_BL), case.new_BL.requires_grad_())


@NAMES
def test_on_policy_every_loss_follows_the_policy_gradient(name: str) -> None:
    case = Case.drawn([3, 5, 1], seed=0, apart=0.0)
    _, gradient_BL = case.loss_and_gradient(name)
    torch.testing.assert_close(gradient_BL, -case.advantage_B[:, None] * case.mask_BL)


@pytest.mark.parametrize("name", ["dual_clip", "grpo", "gspo"])
def test_on_policy_a_loss_of_ratios_is_minus_the_advantage(name: str) -> None:
    case = Case.drawn([3, 5, 1], seed=0, apart=0.0)
    loss_BL, _ = case.loss_and_gradient(name)
    torch.testing.assert_close(loss_BL, -case.advantage_B[:, None] * case.mask_BL)


@NAMES
@FEW
@given(lengths=LENGTHS, seed=st.integers(0, 99), pad=st.integers(1, 5))
def test_padding_changes_nothing(name: str, lengths: list[int], seed: int, pad: int) -> None:
    plain, padded = Case.drawn(lengths, seed), Case.drawn(lengths, seed, pad=pad)
    for got, want in zip(padded.loss_and_gradient(name), plain.loss_and_gradient(name), strict=True):
        torch.testing.assert_close(got[:, : want.shape[1]], want, rtol=1e-12, atol=0)
        assert not got[:, want.shape[1] :].any()


@NAMES
@FEW
@given(lengths=LENGTHS, seed=st.integers(0, 99), size=st.integers(1, 4))
def test_micro_batches_change_nothing(name: str, lengths: list[int], seed: int, size: int) -> None:
    case = Case.drawn(lengths, seed)
    parts = [case.loss(name, case.new_BL, slice(i, i + size)) for i in range(0, len(lengths), size)]
    torch.testing.assert_close(torch.cat(parts), case.loss(name, case.new_BL), rtol=1e-12, atol=0)


@NAMES
def test_a_loss_scales_with_the_advantages_token_by_token(name: str) -> None:
    case = Case.drawn([3, 6, 2], seed=3)
    advantage_BL = case.advantage_B[:, None] * case.mask_BL
    weight_BL = torch.rand(case.mask_BL.shape, dtype=torch.float64).round(decimals=1)
    inputs = (case.new_BL, case.old_BL)
    plain_BL = policy_loss(name)(*inputs, advantage_BL, case.mask_BL, ALGORITHM).loss_BL
    weighted_BL = policy_loss(name)(*inputs, advantage_BL * weight_BL, case.mask_BL, ALGORITHM).loss_BL
    torch.testing.assert_close(weighted_BL, plain_BL * weight_BL)


@NAMES
def test_metrics_are_values_per_token_without_gradient(name: str) -> None:
    case = Case.drawn([3, 5], seed=1)
    advantage_BL = case.advantage_B[:, None] * case.mask_BL
    terms = policy_loss(name)(case.new_BL.requires_grad_(), case.old_BL, advantage_BL, case.mask_BL, ALGORITHM)
    assert "train/ratio" in terms.means
    for value_BL in terms.means.values():
        assert value_BL.shape == case.mask_BL.shape and not value_BL.requires_grad


@FEW
@given(lengths=LENGTHS, seed=st.integers(0, 999), aggregation=st.sampled_from(["token", "sequence", "constant"]))
def test_weights_make_the_trainers_sum_the_chosen_mean(
    lengths: list[int], seed: int, aggregation: Literal["token", "sequence", "constant"]
) -> None:
    """Also when the trainer divides by the tokens of samples that are left out."""
    case = Case.drawn(lengths, seed)
    loss_BL = case.loss("grpo", case.new_BL)
    keep_B = torch.rand(len(lengths), generator=torch.Generator().manual_seed(seed)).round().double()
    kept_BL, divisor = case.mask_BL * keep_B[:, None], float(sum(lengths))
    tokens, samples = float(kept_BL.sum()), float(keep_B.sum())
    weight_BL = token_weights(kept_BL, aggregation, tokens, samples, divisor=divisor, constant_length=7)
    kept = [row for row, keep in zip(case.rows(loss_BL), keep_B.tolist(), strict=True) if keep]
    want = oracle.reduced(kept, aggregation, constant=7) if kept else 0.0
    assert float((loss_BL * weight_BL).sum()) / divisor == pytest.approx(want)


def test_gspo_under_mean_over_samples_has_the_gradient_of_the_papers_objective() -> None:
    case = Case.drawn([2, 5], seed=7, apart=0.05)
    logprob_BL = case.new_BL.clone().requires_grad_()
    weight_BL = token_weights(case.mask_BL, "sequence", 7.0, 2.0)
    (got_BL,) = torch.autograd.grad((case.loss("gspo", logprob_BL) * weight_BL).sum() / 7, logprob_BL)
    again_BL = case.new_BL.clone().requires_grad_()
    log_ratio_B = ((again_BL - case.old_BL) * case.mask_BL).sum(-1) / torch.tensor([2.0, 5.0], dtype=torch.float64)
    (want_BL,) = torch.autograd.grad(-(log_ratio_B.exp() * case.advantage_B).mean(), again_BL)
    torch.testing.assert_close(got_BL, want_BL)


def test_gspo_clips_whole_responses_and_cispo_no_gradient_at_all() -> None:
    case = Case.drawn([4, 4], seed=5)
    case = Case(case.lengths, case.old_BL + case.mask_BL, case.old_BL, case.advantage_B.abs(), case.mask_BL)
    assert not case.loss_and_gradient("gspo")[1].any()  # the ratio is e, above 1.28
    _, gradient_BL = case.loss_and_gradient("cispo")
    torch.testing.assert_close(gradient_BL, -1.28 * case.advantage_B[:, None] * case.mask_BL)


def test_dual_clip_bounds_the_loss_of_a_bad_token() -> None:
    logprob_BL, ones_BL = torch.tensor([[5.0, 0.1]]), torch.ones(1, 2)
    terms = policy_loss("dual_clip")(logprob_BL, torch.zeros(1, 2), -ones_BL, ones_BL, ALGORITHM)
    assert terms.loss_BL[0].tolist() == [1.5, pytest.approx(1.10517, abs=1e-5)]
    assert terms.means["train/dual_clip_fraction"].tolist() == [[1.0, 0.0]]
