"""The digest's benchmark on a CPU: what it measures is what it says, and every way is measured in every round."""

from __future__ import annotations

import pytest
import torch

from benchmarks import digest


@pytest.mark.parametrize("count", [1, 2, 400])
def test_many_tensors_fill_the_buffer_and_every_second_one_is_small(count: int) -> None:
    buffer = torch.arange(2_000_000)
    tensors = digest.split(buffer, count)
    assert len(tensors) == count
    assert torch.equal(torch.cat(tensors), buffer)
    assert {tensor.nbytes for tensor in tensors[:-1:2]} <= {digest.SMALL_BYTES}


def test_every_way_is_measured_in_every_round() -> None:
    case = digest.Case("small", 1 << 20, tensors=20)
    seconds = digest.measure(case, torch.device("cpu"), rounds=3)
    assert {name: len(rounds) for name, rounds in seconds.items()} == {"ours": 3, "copy": 3, "sum": 3}
    assert min(map(min, seconds.values())) > 0


def test_both_sides_are_two_digests_against_half_a_copy() -> None:
    assert digest.both_sides({"ours": [1.0, 2.0, 9.0], "copy": [3.0, 4.0, 8.0]}) == 2.0
