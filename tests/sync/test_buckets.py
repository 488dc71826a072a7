"""Any tensors survive the way through buckets of any size, bit for bit, while the buckets' memory is used again."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nemotron_rl.sync.buckets import ALIGNMENT, Unpacker, as_bytes, packed

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.uint8)
SHAPES = st.lists(st.integers(0, 40), max_size=3).map(tuple)


@st.composite
def weights(draw: st.DrawFn) -> list[tuple[str, Tensor]]:
    """Tensors of mixed types, some of them strided, some empty, some without dimensions."""
    named = []
    for number in range(draw(st.integers(0, 8))):
        dtype, shape = draw(st.sampled_from(DTYPES)), draw(SHAPES)
        generator = torch.Generator().manual_seed(number)
        tensor = (torch.randn(shape, generator=generator) * 100).to(dtype)
        named.append((f"t{number}", tensor.mT if len(shape) > 1 and draw(st.booleans()) else tensor))
    return named


@given(weights(), st.integers(1, 20))
def test_what_was_packed_is_unpacked(named: list[tuple[str, Tensor]], units: int) -> None:
    buffers = [torch.empty(units * ALIGNMENT, dtype=torch.uint8) for _ in range(2)]
    used = 0

    def memory() -> Tensor:
        nonlocal used
        used += 1
        return buffers[used % 2].fill_(255)

    unpacker, count = Unpacker(), 0
    expected = iter(named)
    for bucket, data_N in packed(named, memory):
        assert bucket.nbytes == len(data_N) <= units * ALIGNMENT
        assert all(piece.place % ALIGNMENT == 0 for piece in bucket.pieces)
        for name, tensor in unpacker.tensors(bucket, data_N.clone()):
            count += 1
            wanted_name, wanted = next(expected)
            assert (name, tensor.dtype, tensor.shape) == (wanted_name, wanted.dtype, wanted.shape)
            assert torch.equal(as_bytes(tensor), as_bytes(wanted))
    assert count == len(named)


def test_a_tensor_is_cut_only_when_it_is_larger_than_a_bucket() -> None:
    named = [("a", torch.zeros(300, dtype=torch.uint8)), ("b", torch.zeros(1500, dtype=torch.uint8))]
    named += [("c", torch.zeros(400, dtype=torch.uint8))]
    made = [bucket for bucket, _ in packed(named, lambda: torch.empty(1024, dtype=torch.uint8))]
    assert [[(piece.name, piece.start, piece.length) for piece in bucket.pieces] for bucket in made] == [
        [("a", 0, 300)],
        [("b", 0, 1024)],
        [("b", 1024, 476), ("c", 0, 400)],
    ]


def test_two_tensors_of_one_name_both_arrive() -> None:
    named = [("a", torch.zeros(2)), ("a", torch.ones(2))]
    ((bucket, data_N),) = packed(named, lambda: torch.empty(1024, dtype=torch.uint8))
    assert [name for name, _ in Unpacker().tensors(bucket, data_N)] == ["a", "a"]
