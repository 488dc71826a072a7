"""Routes as tensors."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.errors import NemotronRLError
from nemotron_rl.rl.batch import TokenSequence, make_batch
from nemotron_rl.rl.routes import NO_ROUTE, changed_routes, check_routes, stack_routes


def routes(tokens: int, layers: int = 2, top: int = 2) -> torch.Tensor:
    return torch.arange(tokens * layers * top, dtype=torch.int16).view(tokens, layers, top)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4), st.integers(0, 3))
def test_stacked_routes_are_each_samples_own_and_nothing_beyond(lengths: list[int], extra: int) -> None:
    length = max(lengths) + extra
    stacked = stack_routes([routes(n) for n in lengths], length)
    assert stacked is not None and stacked.shape == (len(lengths), length, 2, 2)
    for row, n in enumerate(lengths):
        assert torch.equal(stacked[row, :n], routes(n))
        assert (stacked[row, n:] == NO_ROUTE).all()


def test_samples_without_routes_give_none() -> None:
    assert stack_routes([None, None], 3) is None
    assert make_batch([TokenSequence((1,), (2,))], 0).routes_BLMK is None


@pytest.mark.parametrize("other", [None, routes(2, layers=3)])
def test_samples_that_differ_are_refused(other: torch.Tensor | None) -> None:
    with pytest.raises(NemotronRLError, match="all or none must have them, of one size"):
        stack_routes([routes(2), other], 4)


def test_the_last_token_of_a_sample_has_no_route() -> None:
    batch = make_batch(
        [TokenSequence((1, 2), (3,), (0.0,), routes(2)), TokenSequence((1,), (2,), (0.0,), routes(1))], 0
    )
    assert batch.routes_BLMK is not None
    assert (batch.routes_BLMK[:, :, 0, 0] == NO_ROUTE).tolist() == [[False, False, True], [False, True, True]]


@pytest.mark.parametrize(
    ("given_routes", "message"),
    [
        ([[[0, 1]]], "routes of 1 tokens; it ran 2"),
        ([[[0, 1]], [[1, 1]]], r"token 1 in MoE layer 0 is \[1, 1\]"),
        ([[[0, 4]], [[1, 2]]], r"token 0 in MoE layer 0 is \[0, 4\]"),
        ([[[0, 1]], [[-1, 2]]], "different experts of 4"),
    ],
)
def test_routes_that_cannot_be_are_refused(given_routes: list[list[list[int]]], message: str) -> None:
    with pytest.raises(NemotronRLError, match=message):
        check_routes(torch.tensor(given_routes), tokens=2, experts=4)
    check_routes(torch.tensor([[[0, 3]], [[2, 1]]]), tokens=2, experts=4)


def test_the_order_of_experts_is_no_change() -> None:
    changed = changed_routes(torch.tensor([[0, 1], [2, 3], [2, 3]]), torch.tensor([[1, 0], [3, 1], [3, 2]]))
    assert changed.tolist() == [False, True, False]
