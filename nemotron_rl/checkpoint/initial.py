"""The random values of a synthetic checkpoint: each tensor from a seed of its own, in bounded chunks.

A tensor's values depend on the seed, its name and its shape, and on nothing else: neither shard sizes nor order
matter.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from nemotron_rl.checkpoint.dtypes import NUMPY_DTYPES
from nemotron_rl.checkpoint.tensor_table import Init, TensorSpec

CHUNK_ELEMENTS = 1 << 21
RECIPE = 1
"""Goes up when equal seeds begin to give other values: part of the name under which results are cached."""

EXPERT_BIAS_OFFSET, EXPERT_BIAS_SPREAD = 1.0, 1e-3
"""A common offset leaves routing as it is; a spread below bf16's step there (2^-7) is lost by whoever casts to bf16."""
EMBEDDING_STD = 0.5
DT_MIN, DT_MAX = 1e-3, 1e-1
A_MIN, A_MAX = 1.0, 16.0

_Array = np.ndarray[Any, np.dtype[np.float32]]


def initial_values(spec: TensorSpec, seed: int, layers: int) -> Iterator[memoryview]:
    """The tensor's bytes in chunks of at most `CHUNK_ELEMENTS` elements.

    Linear weights are normal with variance 1/fan_in, divided by the number of `layers` where they write to the residual
    stream, so that activations keep their size whatever the depth. dt_bias, A_log, D: as in Mamba-2 (arXiv 2405.21060).
    """
    rng = np.random.Generator(np.random.Philox(key=_seed_of(spec.name, seed)))
    dtype = NUMPY_DTYPES[spec.dtype]
    draw = _DRAWS[spec.init]
    for start in range(0, spec.params, CHUNK_ELEMENTS):
        count = min(CHUNK_ELEMENTS, spec.params - start)
        values = draw(rng, count, spec, layers)
        yield memoryview(values.astype(dtype).view(np.uint8))


def _seed_of(name: str, seed: int) -> int:
    """128 bits from the seed and the tensor's name."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:16], "little")


def _fan_in(spec: TensorSpec) -> int:
    return math.prod(spec.shape[1:])


def _normal(rng: np.random.Generator, count: int, std: float) -> _Array:
    return rng.standard_normal(count, dtype=np.float32) * np.float32(std)


def _uniform(rng: np.random.Generator, count: int, low: float, high: float) -> _Array:
    return rng.random(count, dtype=np.float32) * np.float32(high - low) + np.float32(low)


def _ones(rng: np.random.Generator, count: int, spec: TensorSpec, layers: int) -> _Array:
    return np.ones(count, dtype=np.float32)


def _input(rng: np.random.Generator, count: int, spec: TensorSpec, layers: int) -> _Array:
    return _normal(rng, count, 1 / math.sqrt(_fan_in(spec)))


def _output(rng: np.random.Generator, count: int, spec: TensorSpec, layers: int) -> _Array:
    return _normal(rng, count, 1 / math.sqrt(_fan_in(spec) * layers))


def _embedding(rng: np.random.Generator, count: int, spec: TensorSpec, layers: int) -> _Array:
    return _normal(rng, count, EMBEDDING_STD)


def _small(rng: np.random.Generator, count: int, spec: TensorSpec, layers: int) -> _Array:
    """Convolution weights, and biases: uniform, of the size that a fan-in of 4 (the convolution's width) gives."""
    return _uniform(rng, count, -0.5, 0.5)


def _a_log(rng: np.random.Generator, count: int, spec: TensorSpec, layers: int) -> _Array:
    return np.log(_uniform(rng, count, A_MIN, A_MAX))


def _dt_bias(rng: np.random.Generator, count: int, spec: TensorSpec, layers: int) -> _Array:
    """Inverse softplus of a log-uniform time step."""
    dt = np.exp(_uniform(rng, count, math.log(DT_MIN), math.log(DT_MAX)))
    inverse: _Array = dt + np.log(-np.expm1(-dt))
    return inverse


def _expert_bias(rng: np.random.Generator, count: int, spec: TensorSpec, layers: int) -> _Array:
    return _normal(rng, count, EXPERT_BIAS_SPREAD) + np.float32(EXPERT_BIAS_OFFSET)


_DRAWS: Mapping[Init, Callable[[np.random.Generator, int, TensorSpec, int], _Array]] = {
    "ones": _ones,
    "input": _input,
    "output": _output,
    "embedding": _embedding,
    "small": _small,
    "a_log": _a_log,
    "dt_bias": _dt_bias,
    "expert_bias": _expert_bias,
}
