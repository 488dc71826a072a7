"""The objective of an update: KL penalty, correction between engine and trainer, shaping and left-out prompts."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nemotron_rl.config.rl import AlgorithmSettings, OffPolicySettings
from nemotron_rl.rl.batch import Batch, TokenSequence, make_batch
from nemotron_rl.rl.kl import KL_ESTIMATES
from nemotron_rl.rl.losses import policy_loss, policy_loss_names
from nemotron_rl.rl.objective import policy_objective
from nemotron_rl.rl.off_policy import mismatch, rollout_weights
from nemotron_rl.rl.shaping import informative_groups, overlong_penalty, shaped_rewards
from tests.oracles import rl_correction as oracle

FEW = settings(max_examples=25)  # examples, for each is run for every registered name
LENGTHS = (3, 1, 5)
OFF_POLICY = st.builds(
    OffPolicySettings,
    correction=st.sampled_from(["none", "truncate", "mask"]),
    level=st.sampled_from(["token", "sequence"]),
    low=st.sampled_from([0.0, 0.5, 0.9]),
    high=st.sampled_from([1.1, 2.0, 5.0]),
    mismatch_max=st.sampled_from([None, 0.2, 1.0]),
)


def drawn(seed: int = 0, lengths: tuple[int, ...] = LENGTHS, apart: float = 0.4) -> tuple[Tensor, Batch]:
    """Log-probs with other values outside the response too, and a batch."""
    generator = torch.Generator().manual_seed(seed)
    batch = make_batch([TokenSequence((1, 2), (3,) * length) for length in lengths], 0)
    mask_BL = batch.mask_BL.double()

    def random_BL() -> Tensor:
        return torch.randn(mask_BL.shape, generator=generator, dtype=torch.float64)

    logprob_BL = -3 * random_BL().abs()
    near = {
        name: (logprob_BL + apart * random_BL()) * mask_BL
        for name in ("old_logprob_BL", "rollout_logprob_BL", "reference_logprob_BL")
    }
    return logprob_BL, batch.with_(mask_BL=mask_BL, weight_BL=mask_BL, advantage_BL=random_BL() * mask_BL, **near)


@pytest.mark.parametrize("name", policy_loss_names())
def test_without_options_the_objective_is_the_registered_loss_bit_for_bit(
    name: Literal["cispo", "dual_clip", "grpo", "gspo", "reinforce"],
) -> None:
    logprob_BL, batch = drawn()
    algorithm = AlgorithmSettings(name=name)
    got = policy_objective(algorithm)(logprob_BL, batch)
    inputs = (logprob_BL, batch.old_logprob_BL, batch.advantage_BL, batch.mask_BL)
    want = policy_loss(name)(*inputs, algorithm)
    assert torch.equal(got.loss_BL * batch.mask_BL, want.loss_BL * batch.mask_BL)
    assert got.means.keys() == want.means.keys()


@pytest.mark.parametrize("name", policy_loss_names())
@pytest.mark.parametrize("estimate", ["k2", "k3"])
def test_a_prompt_token_that_no_model_expects_leaves_loss_and_gradient_finite(
    name: Literal["cispo", "dual_clip", "grpo", "gspo", "reinforce"], estimate: Literal["k2", "k3"]
) -> None:
    logprob_BL, batch = drawn()
    logprob_BL = torch.where(batch.mask_BL > 0, logprob_BL, -1e4).float().requires_grad_()
    objective = policy_objective(AlgorithmSettings(name=name, kl_coef=0.1, kl_estimator=estimate))
    total = (objective(logprob_BL, batch).loss_BL * batch.weight_BL).sum()
    (gradient_BL,) = torch.autograd.grad(total, logprob_BL)
    assert total.isfinite() and gradient_BL.isfinite().all()
    assert not gradient_BL[batch.mask_BL == 0].any()


@pytest.mark.parametrize("estimate", ["k2", "k3"])
def test_kl_in_the_loss_is_added_and_passes_gradcheck(estimate: Literal["k2", "k3"]) -> None:
    logprob_BL, batch = drawn()
    plain = policy_objective(AlgorithmSettings())
    penalised = policy_objective(AlgorithmSettings(kl_coef=0.5, kl_estimator=estimate))

    def extra(values_BL: Tensor) -> Tensor:
        return (penalised(values_BL, batch).loss_BL - plain(values_BL, batch).loss_BL) * batch.mask_BL

    kl_BL = KL_ESTIMATES[estimate](logprob_BL, batch.reference_logprob_BL)
    torch.testing.assert_close(extra(logprob_BL), 0.5 * kl_BL * batch.mask_BL)
    assert torch.autograd.gradcheck(extra, logprob_BL.requires_grad_())


def test_kl_in_the_reward_is_measured_but_no_term_of_the_loss() -> None:
    logprob_BL, batch = drawn()
    got = policy_objective(AlgorithmSettings(kl_coef=0.5, kl_in="reward", kl_estimator="k1"))(logprob_BL, batch)
    assert torch.equal(got.loss_BL, policy_objective(AlgorithmSettings())(logprob_BL, batch).loss_BL)
    assert "train/kl" in got.means


def test_kl_in_the_reward_takes_the_log_ratio_of_the_whole_response() -> None:
    _, batch = drawn()
    reward_B = torch.tensor([1.0, 0.0, 0.5], dtype=torch.float64)
    algorithm = AlgorithmSettings(kl_coef=0.5, kl_in="reward", kl_estimator="k1")
    got = shaped_rewards(reward_B, batch, algorithm, longest=5)
    for row, length in enumerate(LENGTHS):
        tokens = range(2, 2 + length)
        kl = sum(float(batch.old_logprob_BL[row, t] - batch.reference_logprob_BL[row, t]) for t in tokens)
        assert float(got[row]) == pytest.approx(float(reward_B[row]) - 0.5 * kl)


def test_without_options_rewards_are_untouched() -> None:
    _, batch = drawn()
    reward_B = torch.tensor([1.0, 0.1, 0.5])
    assert shaped_rewards(reward_B, batch, AlgorithmSettings(), longest=5) is reward_B


@pytest.mark.parametrize("name", KL_ESTIMATES)
def test_estimates_of_kl_average_to_the_divergence(name: str) -> None:
    p = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    q = torch.tensor([0.59, 0.305, 0.105], dtype=torch.float64)
    divergence = float((p * (p / q).log()).sum())
    exact = 1e-9 if name != "k2" else 0.05  # k2's bias is of third order
    assert float((p * KL_ESTIMATES[name](p.log(), q.log())).sum()) == pytest.approx(divergence, rel=exact)


def test_k2_has_the_gradient_of_the_divergence_and_k1_none_on_average() -> None:
    """Over all tokens of a softmax: what the rule against k1 in the loss is about."""
    q = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log()

    def gradient(name: str | None) -> Tensor:
        logits = torch.tensor([0.4, -0.2, 0.1], dtype=torch.float64, requires_grad=True)
        logprob = logits.log_softmax(-1)
        inside = logprob - q if name is None else KL_ESTIMATES[name](logprob, q)
        probability = logprob.exp() if name is None else logprob.exp().detach()
        (found,) = torch.autograd.grad((probability * inside).sum(), logits)
        return found

    torch.testing.assert_close(gradient("k2"), gradient(None))
    torch.testing.assert_close(gradient("k1"), torch.zeros(3, dtype=torch.float64))
    assert not torch.allclose(gradient("k3"), gradient(None))


@FEW
@given(OFF_POLICY, st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(0, 999))
def test_weights_between_engine_and_trainer_are_those_of_the_loop(
    off_policy: OffPolicySettings, lengths: list[int], seed: int
) -> None:
    _, batch = drawn(seed, tuple(lengths))
    got_BL = rollout_weights(batch.old_logprob_BL, batch.rollout_logprob_BL, batch.mask_BL, off_policy)
    for row, length in enumerate(lengths):
        tokens = slice(2, 2 + length)
        inputs = (batch.old_logprob_BL[row, tokens].tolist(), batch.rollout_logprob_BL[row, tokens].tolist())
        assert got_BL[row, tokens].tolist() == pytest.approx(oracle.weights(*inputs, off_policy))
        assert not got_BL[row, 2 + length :].any() and not got_BL[row, :2].any()


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("correction", ["truncate", "mask"])
def test_models_that_agree_need_no_correction(
    correction: Literal["truncate", "mask"], level: Literal["token", "sequence"]
) -> None:
    logprob_BL, batch = drawn()
    batch = batch.with_(rollout_logprob_BL=batch.old_logprob_BL)
    off_policy = OffPolicySettings(correction=correction, level=level, low=0.5, mismatch_max=0.01)
    got = policy_objective(AlgorithmSettings(off_policy=off_policy))(logprob_BL, batch)
    assert torch.equal(got.loss_BL, policy_objective(AlgorithmSettings())(logprob_BL, batch).loss_BL)


def test_the_correction_weighs_the_policy_loss_and_not_the_kl_penalty() -> None:
    logprob_BL, batch = drawn()
    off_policy = OffPolicySettings(mismatch_max=1e-9)  # everything is beyond it
    got = policy_objective(AlgorithmSettings(off_policy=off_policy, kl_coef=0.5))(logprob_BL, batch)
    kl_BL = KL_ESTIMATES["k3"](logprob_BL, batch.reference_logprob_BL)
    torch.testing.assert_close(got.loss_BL * batch.mask_BL, 0.5 * kl_BL * batch.mask_BL)
    assert (got.means["train/rollout_dropped"] == 1)[batch.mask_BL > 0].all()


def test_huge_ratios_stay_finite() -> None:
    trainer_BL, ones_BL = torch.tensor([[0.0, -1.0]]), torch.ones(1, 2)
    engine_BL = torch.tensor([[-500.0, -1.0]])
    for correction, want in (("truncate", [2.0, 1.0]), ("mask", [0.0, 1.0])):
        off_policy = OffPolicySettings.model_validate({"correction": correction})
        assert rollout_weights(trainer_BL, engine_BL, ones_BL, off_policy)[0].tolist() == want


def test_differences_of_opposite_sign_are_a_mismatch_all_the_same() -> None:
    assert mismatch(torch.tensor([[1.0, -1.0, 0.0]]), torch.tensor([[1.0, 1.0, 0.0]])).tolist() == [1.0]


@pytest.mark.parametrize("algorithm", [AlgorithmSettings(), AlgorithmSettings(name="gspo", kl_coef=0.1)])
@FEW
@given(size=st.integers(1, 3))
def test_micro_batches_change_nothing(algorithm: AlgorithmSettings, size: int) -> None:
    logprob_BL, batch = drawn()
    off_policy = OffPolicySettings(correction="mask", level="sequence", mismatch_max=0.5)
    objective = policy_objective(algorithm.model_copy(update={"off_policy": off_policy}))
    pieces = zip(logprob_BL.split(size), batch.micro_batches(size), strict=True)
    parts = [objective(logprob, piece).loss_BL for logprob, piece in pieces]
    torch.testing.assert_close(torch.cat(parts), objective(logprob_BL, batch).loss_BL, rtol=1e-12, atol=0)


@FEW
@given(st.integers(1, 40), st.integers(1, 20), st.integers(0, 20))
def test_soft_punishment_is_that_of_the_paper(length: int, longest: int, cache: int) -> None:
    got = float(overlong_penalty(torch.tensor([float(length)]), longest, cache))
    assert got == pytest.approx(oracle.overlong(length, longest, cache) if cache else 0.0)


def test_overlong_responses_lose_reward_by_their_length() -> None:
    _, batch = drawn()
    got = shaped_rewards(torch.ones(3), batch, AlgorithmSettings(overlong_tokens=4), longest=5)
    assert got.tolist() == [0.5, 1.0, 0.0]


def test_prompts_whose_samples_all_got_one_reward_are_left_out() -> None:
    reward_S = torch.tensor([0.0, 1.0, 1.0, 0.1, 0.1, 0.1, 0.0])
    group_S = torch.tensor([4, 7, 4, 2, 2, 2, 9])
    assert informative_groups(reward_S, group_S).tolist() == [1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
