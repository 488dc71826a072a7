from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.checkpoint.dtypes import NUMPY_DTYPES
from nemotron_rl.checkpoint.finite import count_not_finite

SMALL = ["F16", "BF16", "F8_E5M2", "F8_E4M3", "F8_E8M0"]
WIDE = {"F32": np.uint32, "F64": np.uint64}


def by_value(values: np.ndarray) -> tuple[int, int]:
    """The obvious way: as float64, which has every value of the others."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        wide = values.astype(np.float64)
    return int(np.isnan(wide).sum()), int(np.isinf(wide).sum())


@pytest.mark.parametrize("dtype", SMALL)
def test_every_pattern_of_bits_is_told_right(dtype: str) -> None:
    bits = np.arange(1 << (8 * NUMPY_DTYPES[dtype].itemsize)).astype(f"<u{NUMPY_DTYPES[dtype].itemsize}")
    for value in (bits, *bits.reshape(16, -1)):
        assert count_not_finite(value.tobytes(), dtype) == by_value(value.view(NUMPY_DTYPES[dtype]))


@pytest.mark.parametrize("dtype", WIDE)
@given(st.data())
def test_wide_floats_are_told_right(dtype: str, data: st.DataObject) -> None:
    special = st.sampled_from([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, float(np.finfo(np.float32).max), 1e-45])
    values = np.array(data.draw(st.lists(special | st.floats(width=32), max_size=20)), NUMPY_DTYPES[dtype])
    assert count_not_finite(values.tobytes(), dtype) == by_value(values)


def test_signalling_nans_and_the_largest_finite_values() -> None:
    bits = np.array([0x7F800001, 0xFF800001, 0x7F7FFFFF, 0x7F800000], "<u4")
    assert count_not_finite(bits.tobytes(), "F32") == (2, 1)
    largest = np.array([ml_dtypes.finfo(ml_dtypes.bfloat16).max, ml_dtypes.finfo(ml_dtypes.bfloat16).tiny])
    assert count_not_finite(largest.astype(ml_dtypes.bfloat16).tobytes(), "BF16") == (0, 0)


@pytest.mark.parametrize("dtype", sorted(set(NUMPY_DTYPES) - set(SMALL) - set(WIDE)))
def test_integers_are_always_finite(dtype: str) -> None:
    assert count_not_finite(b"\xff" * 64, dtype) == (0, 0)
