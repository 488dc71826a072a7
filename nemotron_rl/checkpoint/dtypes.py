"""The data types of safetensors: codes, sizes and the numpy types that hold them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

NUMPY_DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "F32": np.dtype("<f4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F64": np.dtype("<f8"),
}
"""Numpy type by safetensors code. Types of less than a byte are not read: NVFP4 checkpoints pack them in U8."""

CONFIG_DTYPES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
"""Safetensors code by the name that `dtype` or `torch_dtype` has in config.json."""


def itemsize(code: str) -> int:
    """Bytes per element of a safetensors type."""
    return NUMPY_DTYPES[code].itemsize
