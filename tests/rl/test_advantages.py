"""Every registered advantage estimator against loops, and over data-parallel ranks."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nemotron_rl.config.rl import AlgorithmSettings
from nemotron_rl.rl.advantages import BatchStatistics, estimator, estimator_names, normalized
from tests.oracles import rl_advantages as oracle

FEW = settings(max_examples=25)  # examples, for each is run for every registered name
NAMES = pytest.mark.parametrize("name", estimator_names())
REWARDS = st.lists(
    st.lists(st.sampled_from([0.0, 0.25, 0.1, 1.0, -0.5]), min_size=2, max_size=5), min_size=2, max_size=5
)


def over_ranks(name: str, ranks: list[tuple[Tensor, Tensor]]) -> list[float]:
    """The advantages of all ranks' (rewards, groups), as the job computes them."""
    chosen = estimator(name)
    values = [chosen.centre(reward_S, group_S, AlgorithmSettings()) for reward_S, group_S in ranks]
    if chosen.over_batch:
        statistics = BatchStatistics.of([v for value_S in values for v in value_S.tolist()])
        values = [normalized(value_S, statistics) for value_S in values]
    return [v for value_S in values for v in value_S.tolist()]


def as_tensors(groups: list[list[float]], first: int = 0) -> tuple[Tensor, Tensor]:
    rewards = [reward for group in groups for reward in group]
    indices = [first + index for index, group in enumerate(groups) for _ in group]
    return torch.tensor(rewards, dtype=torch.float64), torch.tensor(indices)


def test_registry_and_settings_offer_the_same_names() -> None:
    assert estimator_names() == sorted(get_args(AlgorithmSettings.model_fields["advantage"].annotation))


@NAMES
@FEW
@given(rewards=REWARDS)
def test_advantages_are_those_of_the_loop(name: str, rewards: list[list[float]]) -> None:
    reward_S, group_S = as_tensors(rewards)
    want = oracle.ADVANTAGES[name](reward_S.tolist(), group_S.tolist())
    assert over_ranks(name, [(reward_S, group_S)]) == pytest.approx(want, rel=1e-9, abs=1e-9)


@NAMES
@FEW
@given(rewards=REWARDS, data=st.data())
def test_the_layout_of_ranks_changes_nothing(name: str, rewards: list[list[float]], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(rewards) - 1))
    split = [as_tensors(rewards[:cut]), as_tensors(rewards[cut:], first=cut)]
    assert over_ranks(name, split) == over_ranks(name, [as_tensors(rewards)])


@NAMES
@FEW
@given(reward=st.sampled_from([0.0, 0.1, 1.0]), prompts=st.integers(1, 4), samples=st.integers(2, 9))
def test_equal_rewards_teach_exactly_nothing(name: str, reward: float, prompts: int, samples: int) -> None:
    reward_S, group_S = as_tensors([[reward] * samples] * prompts)
    assert not any(over_ranks(name, [(reward_S.float(), group_S)]))


@pytest.mark.parametrize("name", [name for name in estimator_names() if name != "reinforce_pp"])
@FEW
@given(rewards=REWARDS, shift=st.sampled_from([1.0, -2.5]))
def test_with_a_baseline_per_prompt_the_difficulty_of_a_prompt_does_not_matter(
    name: str, rewards: list[list[float]], shift: float
) -> None:
    moved = [[reward + shift for reward in rewards[0]], *rewards[1:]]
    assert over_ranks(name, [as_tensors(moved)]) == pytest.approx(over_ranks(name, [as_tensors(rewards)]), abs=1e-6)


def test_rloo_is_dr_grpo_times_g_over_g_minus_one() -> None:
    groups = as_tensors([[1.0, 0.0, 0.0, 0.5]])
    scaled = [value * 4 / 3 for value in over_ranks("dr_grpo", [groups])]
    assert over_ranks("rloo", [groups]) == pytest.approx(scaled)


def test_statistics_of_nothing_and_of_one_value_normalise_to_zero() -> None:
    assert BatchStatistics.of([]) == BatchStatistics(0.0, 0.0)
    assert not normalized(torch.tensor([3.0]), BatchStatistics.of([3.0])).any()
