"""The digest of a tensor's bytes: the torch version against plain Python, and the faults that it has to find."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nemotron_rl.ops.digest import COLUMNS, TILE, digest, digests
from tests.oracles.digest import slow_digest

DTYPES = (torch.bfloat16, torch.float32, torch.uint8)
SIZES = (1, 5, COLUMNS - 1, COLUMNS, COLUMNS + 1, 5 * COLUMNS + 7, TILE - 1, TILE, TILE + 1, 2 * TILE + COLUMNS + 3)
"""In words: within a row, a few rows, whole tiles, and what is left of each."""


def as_tensor(data: bytes, dtype: torch.dtype) -> torch.Tensor:
    size = torch.empty(0, dtype=dtype).element_size()
    return torch.frombuffer(bytearray(data[: len(data) // size * size]), dtype=dtype)


def words_of(count: int, seed: int, bits: int = 32) -> torch.Tensor:
    """Random words of which the lowest `bits` are used."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-(1 << bits - 1), 1 << bits - 1, (count,), generator=generator, dtype=torch.int32)


tensors = st.builds(words_of, st.sampled_from(SIZES), st.integers(0, 99), st.sampled_from([1, 2, 8, 32]))


@given(st.binary(min_size=4, max_size=200), st.sampled_from(DTYPES))
def test_equals_the_formula(data: bytes, dtype: torch.dtype) -> None:
    tensor = as_tensor(data, dtype)
    assert digest(tensor) == slow_digest(bytes(tensor.view(torch.uint8).numpy()))


@pytest.mark.parametrize("words", SIZES)
@pytest.mark.parametrize("missing", [0, 1, 3])
def test_equals_the_formula_where_rows_and_tiles_end(words: int, missing: int) -> None:
    tensor = words_of(words, words).view(torch.uint8)[missing:]
    assert digest(tensor) == slow_digest(bytes(tensor.numpy()))


def test_equals_the_formula_over_many_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = words_of(5 * TILE + 700, 1)
    whole = digest(tensor)
    monkeypatch.setattr("nemotron_rl.ops.digest._TILES_AT_ONCE", 2)
    assert digest(tensor) == whole == slow_digest(bytes(tensor.view(torch.uint8).numpy()))


@given(tensors, st.data())
def test_any_changed_bit_changes_it(tensor: torch.Tensor, data: st.DataObject) -> None:
    changed = tensor.clone()
    place, bit = data.draw(st.integers(0, len(tensor) - 1)), data.draw(st.integers(0, 31))
    changed[place] ^= 1 << bit if bit < 31 else -(1 << 31)
    assert digest(changed) != digest(tensor)


@given(tensors, st.data())
def test_two_exchanged_words_change_it(tensor: torch.Tensor, data: st.DataObject) -> None:
    place = st.integers(0, len(tensor) - 1)
    one, other = data.draw(place), data.draw(place)
    changed = tensor.clone()
    changed[[one, other]] = tensor[[other, one]]
    assert (digest(changed) == digest(tensor)) == (tensor[one] == tensor[other]).item()


@given(tensors, st.data())
def test_two_exchanged_or_moved_blocks_change_it(tensor: torch.Tensor, data: st.DataObject) -> None:
    """A block goes to another place, what was there comes to its own: rows, columns and tiles included."""
    size = data.draw(st.sampled_from([1, 3, 8, COLUMNS, TILE]).filter(lambda n: n <= len(tensor)))
    blocks = tensor[: len(tensor) // size * size].view(-1, size)
    order = torch.tensor(data.draw(st.permutations(range(min(len(blocks), 6)))))
    changed = tensor.clone()
    changed[: len(order) * size] = blocks[order].reshape(-1)
    assert (digest(changed) == digest(tensor)) == torch.equal(changed, tensor)


@given(tensors, st.sampled_from([1, 2, COLUMNS, TILE]))
def test_a_shift_changes_it(tensor: torch.Tensor, by: int) -> None:
    halves = tensor.view(torch.bfloat16)
    changed = halves.roll(by)
    same = torch.equal(changed.view(torch.int32), tensor)
    assert (digest(changed) == digest(halves)) == same


@given(tensors, st.lists(st.integers(0, 10**6), min_size=1, max_size=40))
def test_flipped_signs_change_it(tensor: torch.Tensor, places: list[int]) -> None:
    chosen = sorted({place % len(tensor) for place in places})
    changed = tensor.clone()
    changed[chosen] ^= -(1 << 31)
    assert digest(changed) != digest(tensor)


@pytest.mark.parametrize("words", SIZES)
def test_a_negated_tensor_has_another_digest(words: int) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        tensor = torch.ones(words, dtype=dtype)
        assert len({digest(tensor), digest(-tensor), digest(0 * tensor), digest(-0.0 * tensor)}) == 4


def test_one_nan_is_not_another() -> None:
    quiet = torch.full((600,), 0x7FC00000, dtype=torch.int32)
    other = quiet.clone()
    other[599] += 1
    assert digest(quiet.view(torch.float32)) != digest(other.view(torch.float32))


@given(st.integers(0, 2100), st.integers(1, 2100))
@settings(max_examples=50)
def test_zeros_of_different_lengths_differ(length: int, more: int) -> None:
    assert digest(torch.zeros(length, dtype=torch.uint8)) != digest(torch.zeros(length + more, dtype=torch.uint8))


def test_repetitions_differ_by_their_number_and_by_their_place() -> None:
    block = words_of(COLUMNS, 3)
    zeros = torch.zeros_like(block)
    seen = [
        torch.cat([zeros] * before + [block] * count + [zeros] * (40 - before - count))
        for count in (1, 2, 16, 17)
        for before in (0, 1, 15, 16, 20)
    ]
    assert len({digest(tensor) for tensor in seen}) == len(seen)


def test_two_exchanged_tensors_are_seen_in_both() -> None:
    one, other = digests([words_of(9000, 1), words_of(9000, 2)]).tolist()
    assert digests([words_of(9000, 2), words_of(9000, 1)]).tolist() == [other, one]
    assert one != other


def test_it_does_not_depend_on_how_the_tensor_lies_in_memory() -> None:
    tensor = torch.arange(24, dtype=torch.bfloat16).reshape(4, 6)
    assert digest(tensor) != digest(tensor.flip(0))
    assert digest(tensor.T.contiguous().T) == digest(tensor)
    assert digest(torch.cat([torch.zeros(1, dtype=torch.bfloat16), tensor.view(-1)])[1:]) == digest(tensor)


def test_many_at_once() -> None:
    tensors = [torch.randn(7), torch.zeros(0), torch.randn(3, 5).bfloat16()]
    assert digests(tensors).tolist() == [digest(tensor) for tensor in tensors]
    assert digests([]).tolist() == []


@pytest.mark.gpu
def test_the_gpu_computes_the_same() -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = [*SIZES, 4 * TILE - 1, 4 * TILE, 4 * TILE + 1, 1_000_003]
    tensors = [
        torch.randn(n, generator=generator).to(dtype) for n in sizes for dtype in (torch.bfloat16, torch.float32)
    ]
    tensors += [torch.zeros(0), torch.randn(64, 32, generator=generator)[:, ::2]]
    on_gpu = [tensor.cuda() for tensor in tensors]
    tensors += [tensor.view(-1)[1:] for tensor in tensors if tensor.is_contiguous()]
    on_gpu += [tensor.view(-1)[1:] for tensor in on_gpu if tensor.is_contiguous()]
    assert digests(on_gpu).tolist() == [digest(tensor) for tensor in tensors]
