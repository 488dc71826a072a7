from __future__ import annotations

import hashlib

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemotron_rl.checkpoint import initial
from nemotron_rl.checkpoint.ahead import run_ahead
from nemotron_rl.checkpoint.geometries import preset_config
from nemotron_rl.checkpoint.initial import BLOCK_ELEMENTS, initial_tasks, initial_values
from nemotron_rl.checkpoint.tensor_table import Init, TensorSpec, tensor_table

LARGE = TensorSpec("x", "BF16", (2100, 1000), "input")


def values(spec: TensorSpec, seed: int = 0, layers: int = 4) -> np.ndarray:
    dtype = {"BF16": ml_dtypes.bfloat16, "F32": np.float32, "F16": np.float16}[spec.dtype]
    return np.frombuffer(b"".join(initial_values(spec, seed, layers)), dtype).astype(np.float64)


def test_the_tiny_preset_has_the_values_that_it_always_had() -> None:
    digest = hashlib.sha256()
    for spec in tensor_table(preset_config("tiny")):
        if spec.init not in ("a_log", "dt_bias"):  # numpy's logarithm may differ between processors, in the last bit
            for chunk in initial_values(spec, 0, 16):
                digest.update(chunk)
    assert digest.hexdigest() == "96027d6b18af50e85620e05905de2364fc48f05045ab42a4c5c42c62dab38a37"


def test_large_tensors_come_in_blocks_that_any_thread_may_fill() -> None:
    tasks = initial_tasks(LARGE, 7, 4)
    assert len(tasks) == 3
    blocks = [b"".join(task()) for task in tasks]
    assert [len(block) for block in blocks] == [2 * BLOCK_ELEMENTS] * 2 + [2 * (2_100_000 - 2 * BLOCK_ELEMENTS)]
    assert len(set(blocks)) == 3
    assert [b"".join(task()) for task in reversed(tasks)] == blocks[::-1]
    assert [b"".join(parts) for parts in run_ahead(tasks, 3)] == blocks
    assert b"".join(initial_values(LARGE, 7, 4)) == b"".join(blocks)
    assert b"".join(initial_values(LARGE, 8, 4)) != b"".join(blocks)


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize(
    ("init", "std"), [("input", 1000**-0.5), ("output", 4000**-0.5), ("embedding", initial.EMBEDDING_STD)]
)
def test_large_normal_tensors_are_normal(dtype: str, init: Init, std: float) -> None:
    drawn = values(TensorSpec("x", dtype, (2100, 1000), init)) / std
    assert drawn.mean() == pytest.approx(0, abs=0.003)
    assert drawn.std() == pytest.approx(1, abs=0.003)
    for quantile, value in ((0.001, -3.0902), (0.1, -1.2816), (0.5, 0.0), (0.9, 1.2816), (0.999, 3.0902)):
        assert np.quantile(drawn, quantile) == pytest.approx(value, abs=0.03)
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.003
    rows = drawn.reshape(2100, 1000)
    assert len(np.unique(rows, axis=0)) == len(rows)


@pytest.mark.parametrize("init", ["ones", "small", "a_log", "dt_bias", "expert_bias"])
def test_large_tensors_of_other_kinds_are_like_small_ones(init: Init) -> None:
    large, small = (values(TensorSpec("x", "F32", (count,), init)) for count in (BLOCK_ELEMENTS + 9, BLOCK_ELEMENTS))
    assert len(large) == BLOCK_ELEMENTS + 9
    assert large.mean() == pytest.approx(small.mean(), rel=0.01, abs=0.003)
    assert large.std() == pytest.approx(small.std(), rel=0.01)


@settings(max_examples=10)
@given(st.integers(1, 60), st.integers(0, 3))
def test_blocks_of_any_length_are_whole(count: int, seed: int) -> None:
    spec = TensorSpec("x", "BF16", (count,), "embedding")
    whole = initial._block(spec, seed, 4, 0)
    assert sum(map(len, whole)) == 2 * count
    longer = initial._block(TensorSpec("x", "BF16", (count + 1,), "embedding"), seed, 4, 0)
    assert bytes(longer[0]).startswith(bytes(whole[0]))


def test_the_table_of_quantiles_is_symmetric_ascending_and_of_variance_1() -> None:
    table = initial._quantiles().astype(np.float64)
    assert len(table) == 1 << 16
    assert np.all(np.diff(table) > 0) and np.array_equal(table, -table[::-1])
    assert table.std() == pytest.approx(1, abs=1e-6)
