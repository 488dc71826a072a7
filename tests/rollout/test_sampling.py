"""Drawing tokens: distribution, truncation, seeds."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.config.rollout import SamplingSettings
from nemotron_rl.rollout.sampling import sample, uniforms

LOGITS = st.lists(st.floats(-8, 8, width=32), min_size=2, max_size=12)


def allowed(logits: list[float], settings: SamplingSettings) -> set[int]:
    """The tokens that top-k and then top-p leave, by their definitions."""
    p = [math.exp(x / settings.temperature) for x in logits]
    order = sorted(range(len(p)), key=lambda i: -p[i])
    kept = order[: settings.top_k] if settings.top_k else order
    total, reached, chosen = sum(p[i] for i in kept), 0.0, []
    for i in kept:
        if reached >= settings.top_p * total * (1 + 1e-6):
            break
        chosen.append(i)
        reached += p[i]
    return set(chosen)


@given(LOGITS, st.floats(0, 1, exclude_max=True), st.integers(0, 12), st.floats(0.05, 1.0))
def test_only_tokens_within_top_k_and_top_p_are_drawn(logits: list[float], u: float, k: int, p: float) -> None:
    settings = SamplingSettings(temperature=0.7, top_k=k, top_p=p)
    token, _ = sample(torch.tensor([logits]), torch.tensor([u], dtype=torch.float64), settings)
    ties = {
        i for i, x in enumerate(logits) for j in allowed(logits, settings) if math.isclose(x, logits[j], abs_tol=1e-5)
    }
    assert int(token) in ties


@given(LOGITS)
def test_the_logprob_is_that_of_the_whole_distribution_at_the_temperature(logits: list[float]) -> None:
    settings = SamplingSettings(temperature=2.0, top_k=1)
    token, logprob = sample(torch.tensor([logits]), torch.tensor([0.3], dtype=torch.float64), settings)
    scaled = [x / 2 for x in logits]
    expected = scaled[int(token)] - math.log(sum(map(math.exp, scaled)))
    assert float(logprob) == pytest.approx(expected, abs=1e-4)


def test_frequencies_follow_the_probabilities() -> None:
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    count = 20_000
    u = torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    token, _ = sample(probabilities.log().expand(count, -1), u, SamplingSettings())
    seen = torch.bincount(token, minlength=4) / count
    assert (seen - probabilities).abs().max() < 4 * math.sqrt(0.25 / count)


def test_temperature_zero_is_greedy() -> None:
    token, logprob = sample(
        torch.tensor([[1.0, 3.0, 2.0]]), torch.tensor([0.99]).double(), SamplingSettings(temperature=0)
    )
    assert int(token) == 1
    assert float(logprob) == pytest.approx(3 - math.log(math.e + math.e**3 + math.e**2), abs=1e-6)


def test_a_row_of_uniforms_depends_on_its_seed_alone() -> None:
    assert torch.equal(uniforms([7, 8], 5)[1], uniforms([8], 5)[0])
    assert not torch.equal(uniforms([7], 5), uniforms([8], 5))
