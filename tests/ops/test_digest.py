"""The digest of a tensor's bytes: the torch version against plain Python, the Triton one against torch."""

from __future__ import annotations

import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.ops.digest import digest, digests

DTYPES = (torch.bfloat16, torch.float32, torch.uint8)


def slow_digest(data: bytes) -> int:
    """The formula of the module's docstring, word by word."""
    data += b"\0" * (-len(data) % 4)
    low = high = 0
    for index, word in enumerate(struct.unpack(f"<{len(data) // 4}I", data)):
        h = word ^ (index * 0x9E3779B1) & 0xFFFFFFFF
        h = (h ^ h >> 15) * 0x85EBCA6B & 0xFFFFFFFF
        h ^= h >> 13
        g = h * 0xC2B2AE35 & 0xFFFFFFFF
        low, high = low + h & 0xFFFFFFFF, high + (g ^ g >> 16) & 0xFFFFFFFF
    return struct.unpack("<q", struct.pack("<Q", high << 32 | low))[0]


def as_tensor(data: bytes, dtype: torch.dtype) -> torch.Tensor:
    size = torch.empty(0, dtype=dtype).element_size()
    return torch.frombuffer(bytearray(data[: len(data) // size * size]), dtype=dtype)


@given(st.binary(min_size=4, max_size=200), st.sampled_from(DTYPES))
def test_equals_the_formula(data: bytes, dtype: torch.dtype) -> None:
    tensor = as_tensor(data, dtype)
    assert digest(tensor) == slow_digest(bytes(tensor.view(torch.uint8).numpy()))


@given(st.binary(min_size=4, max_size=100), st.data())
def test_any_changed_byte_changes_it(data: bytes, draw: st.DataObject) -> None:
    place = draw.draw(st.integers(0, len(data) - 1))
    changed = bytearray(data)
    changed[place] ^= draw.draw(st.integers(1, 255))
    assert digest(as_tensor(data, torch.uint8)) != digest(as_tensor(bytes(changed), torch.uint8))


def test_order_of_equal_words_matters_but_not_how_the_tensor_lies_in_memory() -> None:
    tensor = torch.arange(24, dtype=torch.bfloat16).reshape(4, 6)
    assert digest(tensor) != digest(tensor.flip(0))
    assert digest(tensor.T.contiguous().T) == digest(tensor)
    assert digest(torch.cat([torch.zeros(1, dtype=torch.bfloat16), tensor.view(-1)])[1:]) == digest(tensor)


def test_many_at_once() -> None:
    tensors = [torch.randn(7), torch.zeros(0), torch.randn(3, 5).bfloat16()]
    assert digests(tensors).tolist() == [digest(tensor) for tensor in tensors]


@pytest.mark.gpu
def test_the_gpu_computes_the_same() -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = [1, 2, 3, 4095, 4096, 4097, 65_536, 65_537, 1_000_003]
    tensors = [
        torch.randn(n, generator=generator).to(dtype) for n in sizes for dtype in (torch.bfloat16, torch.float32)
    ]
    tensors += [torch.zeros(0), torch.randn(64, 32, generator=generator)[:, ::2]]
    assert digests([tensor.cuda() for tensor in tensors]).tolist() == [digest(tensor) for tensor in tensors]
