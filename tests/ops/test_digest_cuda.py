"""The digest's Triton kernel without a GPU: interpreted on the CPU, compiled for a Hopper GPU, its work planned."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.ops.digest import ROWS, TILE

pytest.importorskip("triton")

from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from benchmarks import digest_cost
from nemotron_rl.ops import digest_cuda


def test_the_interpreted_kernel_computes_what_torch_does() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.ops.digest_kernel"],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    compared, beside_16 = map(int, done.stdout.split())
    assert compared > 90
    assert beside_16 > 20  # the kernel's other variant ran as well


@pytest.mark.parametrize("aligned", [16, 4])
def test_it_compiles_for_hopper_and_loads_16_bytes_where_it_may(aligned: int) -> None:
    kernel = digest_cost.compiled(digest_cost.ours(aligned))
    wide = kernel.asm["ptx"].count("ld.global.v4.b32")
    assert wide == (2 * ROWS if aligned == 16 else 0)  # a whole tile, and the rows of a part of one


def test_the_call_itself_compiles_for_hopper(a_hopper_driver: None) -> None:
    """Through Triton's own caller, which finds by itself that torch's memory begins at multiples of 16 bytes."""
    table_C4, out_N = torch.zeros(2, 4, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    kernel = digest_cuda.digest_kernel.warmup(
        table_C4, out_N, ALIGNED=16, **digest_cuda.CONSTANTS, num_warps=digest_cuda.WARPS, grid=(2,)
    )
    assert kernel.asm["ptx"].count("ld.global.v4.b32") == 2 * ROWS


@pytest.fixture
def a_hopper_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that Triton may compile for but not launch on; there is none on the machines that run the tests."""

    class Hopper:
        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", digest_cost.CAPABILITY, 32)

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int) -> int:
            return 0

    monkeypatch.setattr(driver, "_active", Hopper())


@given(st.lists(st.tuples(st.integers(0, 3 * TILE), st.integers(0, 2**40)), min_size=1, max_size=9), st.integers(1, 3))
def test_programs_cover_every_word_once(tensors: list[tuple[int, int]], tiles: int) -> None:
    words, address = [w for w, _ in tensors], [4 * a for _, a in tensors]
    table = digest_cuda.chunks(address, words, tiles).tolist()
    covered: dict[int, int] = dict.fromkeys(range(len(words)), 0)
    for where, first, count, tensor in table:
        assert first * ROWS == covered[tensor] and where == address[tensor] + 4 * covered[tensor]
        assert 0 < count <= tiles * TILE
        covered[tensor] += count
    assert list(covered.values()) == words
