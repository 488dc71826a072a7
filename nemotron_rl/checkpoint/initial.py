"""The random values of a synthetic checkpoint: each tensor from a seed of its own, in blocks of bounded size.

A tensor's values depend on the seed, its name and its shape, and on nothing else: neither shard sizes nor order nor the
number of threads matter. Large tensors are cut into blocks with a counter each, so that several threads can fill them;
and their normal values are looked up, 16 random bits each, in a table of quantiles: ten times as fast as drawing them,
and no difference that 16-bit weights could show.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from statistics import NormalDist
from typing import Any

import numpy as np

from nemotron_rl.checkpoint.dtypes import NUMPY_DTYPES
from nemotron_rl.checkpoint.tensor_table import Init, TensorSpec

CHUNK_ELEMENTS = 1 << 21
BLOCK_ELEMENTS = 1 << 20
"""Tensors of more elements are filled block by block."""
RECIPE = 2
"""Goes up when equal seeds begin to give other values: part of the name under which results are cached."""

EXPERT_BIAS_OFFSET, EXPERT_BIAS_SPREAD = 1.0, 1e-3
"""A common offset leaves routing as it is; a spread below bf16's step there (2^-7) is lost by whoever casts to bf16."""
EMBEDDING_STD = 0.5
DT_MIN, DT_MAX = 1e-3, 1e-1
A_MIN, A_MAX = 1.0, 16.0

_Array = np.ndarray[Any, np.dtype[np.float32]]


def initial_values(spec: TensorSpec, seed: int, layers: int) -> Iterator[memoryview]:
    """The tensor's bytes, in order.

    Linear weights are normal with variance 1/fan_in, divided by the number of `layers` where they write to the residual
    stream, so that activations keep their size whatever the depth. dt_bias, A_log, D: as in Mamba-2 (arXiv 2405.21060).
    """
    for task in initial_tasks(spec, seed, layers):
        yield from task()


def initial_tasks(spec: TensorSpec, seed: int, layers: int) -> Sequence[Callable[[], Sequence[memoryview]]]:
    """What has to be done for `initial_values`, in independent parts that threads may share, in order of the bytes.

    Each takes some 10 MB of memory and gives up to `BLOCK_ELEMENTS` elements.
    """
    if spec.params <= BLOCK_ELEMENTS:
        return [partial(_whole, spec, seed, layers)]
    blocks = range(-(-spec.params // BLOCK_ELEMENTS))
    return [partial(_block, spec, seed, layers, block) for block in blocks]


def _whole(spec: TensorSpec, seed: int, layers: int) -> Sequence[memoryview]:
    rng = np.random.Generator(np.random.Philox(key=_seed_of(spec.name, seed)))
    counts = (min(CHUNK_ELEMENTS, spec.params - start) for start in range(0, spec.params, CHUNK_ELEMENTS))
    return [_bytes_of(_DRAWS[spec.init](rng, count, spec, layers), spec) for count in counts]


def _block(spec: TensorSpec, seed: int, layers: int, block: int) -> Sequence[memoryview]:
    """One block of a large tensor."""
    rng = np.random.Generator(np.random.SFC64([_seed_of(spec.name, seed), block]))
    count = min(BLOCK_ELEMENTS, spec.params - block * BLOCK_ELEMENTS)
    std = _normal_std(spec, layers)
    if std is None:
        return [_bytes_of(_DRAWS[spec.init](rng, count, spec, layers), spec)]
    quantiles = (_quantiles() * np.float32(std)).astype(NUMPY_DTYPES[spec.dtype])
    return [_looked_up(quantiles.view(f"<u{quantiles.itemsize}"), rng, count)]


def _looked_up(table: np.ndarray[Any, Any], rng: np.random.Generator, count: int) -> memoryview:
    """`count` entries of a table of 65,536, at random; in parts that stay in the processor's cache."""
    places = rng.integers(0, _ALL_BITS, -(-count // 4), np.uint64, endpoint=True).view(np.uint16)[:count]
    values = np.empty(count, table.dtype)
    for start in range(0, count, len(table)):
        part = slice(start, start + len(table))
        table.take(places[part], out=values[part], mode="wrap")  # none is outside; "raise" would copy once more
    return memoryview(values.view(np.uint8))


def _bytes_of(values: _Array, spec: TensorSpec) -> memoryview:
    return memoryview(values.astype(NUMPY_DTYPES[spec.dtype]).view(np.uint8))


_ALL_BITS = (1 << 64) - 1


@cache
def _quantiles() -> _Array:
    """65,536 values that cut the standard normal distribution into equal parts, of variance 1."""
    normal, half = NormalDist(), 1 << 15
    upper = np.array([normal.inv_cdf(0.5 + (i + 0.5) / (2 * half)) for i in range(half)])
    values = np.concatenate([-upper[::-1], upper])
    scaled: _Array = (values / values.std()).astype(np.float32)
    return scaled


def _normal_std(spec: TensorSpec, layers: int) -> float | None:
    """Standard deviation of a tensor that is normal around 0; None for any other."""
    if spec.init == "embedding":
        return EMBEDDING_STD
    if spec.init not in ("input", "output"):
        return None
    return 1 / math.sqrt(_fan_in(spec) * (layers if spec.init == "output" else 1))


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
