"""Samples as tensors: alignment, padding, micro-batches, KL and agreement."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.rl.agreement import agreement
from nemotron_rl.rl.batch import TokenSequence, make_batch
from nemotron_rl.rl.kl import k3

SEQUENCES = st.lists(
    st.builds(
        TokenSequence,
        st.lists(st.integers(1, 99), min_size=1, max_size=6).map(tuple),
        st.lists(st.integers(1, 99), min_size=1, max_size=6).map(tuple),
    ),
    min_size=1,
    max_size=7,
)


@given(SEQUENCES, st.integers(1, 4))
def test_a_batch_holds_every_token_where_the_mask_says(sequences: list[TokenSequence], multiple: int) -> None:
    batch = make_batch(sequences, pad_token=0, multiple=multiple)
    assert batch.tokens_BL.shape[1] % multiple == 0
    for row, sequence in enumerate(sequences):
        mask = batch.mask_BL[row].bool()
        assert tuple(batch.tokens_BL[row][mask].tolist()) == sequence.response
        together = len(sequence.prompt) + len(sequence.response)
        assert tuple(batch.tokens_BL[row, :together].tolist()) == (*sequence.prompt, *sequence.response)
        assert not batch.tokens_BL[row, together:].any()


@given(SEQUENCES, st.integers(1, 9))
def test_micro_batches_are_the_batch_in_pieces(sequences: list[TokenSequence], size: int) -> None:
    batch = make_batch(sequences, pad_token=0)
    pieces = list(batch.micro_batches(size))
    assert torch.equal(torch.cat([piece.tokens_BL for piece in pieces]), batch.tokens_BL)
    assert all(len(piece.tokens_BL) <= size for piece in pieces)


def test_rollout_logprobs_lie_on_their_tokens() -> None:
    batch = make_batch([TokenSequence((5, 6), (7, 8), (-0.5, -0.25))], pad_token=0)
    assert batch.rollout_logprob_BL.tolist() == [[0.0, 0.0, -0.5, -0.25]]


def test_k3_is_zero_for_equal_models_and_close_to_the_divergence_on_average() -> None:
    p = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    q = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    assert not k3(p.log(), p.log()).any()
    expected = float((p * (p / q).log()).sum())
    assert float((p * k3(p.log(), q.log())).sum()) == pytest.approx(expected)  # exact in expectation


def test_agreement_reports_the_largest_and_the_99th_percentile() -> None:
    difference = torch.zeros(1000)
    difference[:5] = torch.tensor([0.5, -0.9, 0.1, 0.1, 0.1])
    figures = agreement(difference)
    assert figures["logprob/abs_diff_max"] == pytest.approx(0.9)
    assert figures["logprob/abs_diff_p99"] == 0.0
    assert figures["logprob/abs_diff_mean"] == pytest.approx(1.7 / 1000)


def test_agreement_in_ratios_is_what_the_two_distributions_say() -> None:
    sampled = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    scored = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    tokens = torch.tensor([0] * 6 + [1] * 3 + [2])  # as often as they are sampled
    figures = agreement((scored / sampled).log()[tokens])
    assert figures["logprob/ratio_max"] == pytest.approx(2)
    assert figures["logprob/ratio_min"] == pytest.approx(5 / 6)
    assert figures["logprob/ratio_mean"] == pytest.approx(1)
    assert figures["logprob/kl"] == pytest.approx(float((sampled * (sampled / scored).log()).sum()))


def test_agreement_takes_more_tokens_than_torch_has_quantiles_for() -> None:
    assert agreement(torch.ones(2**24 + 1))["logprob/abs_diff_p99"] == 1
