"""The proof finds any difference between what was sent and what is held."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.errors import WeightMismatch
from nemotron_rl.ops.checksum import tensor_checksum
from nemotron_rl.rollout.reference.engine import ReferenceEngine
from nemotron_rl.rollout.reference.load import folder_weights
from nemotron_rl.sync.push import push

BIAS = "backbone.layers.1.mixer.gate.e_score_correction_bias"


@pytest.fixture(scope="module")
def checkpoint(four_layers: Path) -> Path:
    return four_layers


@pytest.fixture
def weights(checkpoint: Path) -> list[tuple[str, torch.Tensor]]:
    return [(name, tensor.float()) for name, tensor in folder_weights(checkpoint)]


def test_a_push_compares_every_tensor_mtp_and_expert_bias_too(checkpoint: Path, weights) -> None:
    engine = ReferenceEngine.from_folder(checkpoint, [3])
    proof = push(lambda: weights, engine, version=3)
    assert (proof.version, proof.tensors) == (3, len(weights))
    assert proof.nbytes == sum(tensor.nbytes for _, tensor in weights)
    assert {name for name, _ in weights} == set(engine.checksums())
    assert BIAS in engine.checksums()
    assert any(name.startswith("mtp.layers.1.mixer.experts.") for name in engine.checksums())


@pytest.mark.parametrize(
    "name", [BIAS, "mtp.layers.0.eh_proj.weight", "backbone.layers.3.mixer.experts.5.up_proj.weight"]
)
def test_one_changed_bit_in_the_engine_is_found_and_located(checkpoint: Path, weights, name: str) -> None:
    class Faulty(ReferenceEngine):
        """An engine whose memory is hit after a transfer."""

        def receive(self, arriving, version: int) -> None:
            super().receive(arriving, version)
            flat = self.tensor(name).view(-1).view(torch.int32)
            flat[2] ^= 1

    with pytest.raises(WeightMismatch) as error:
        push(lambda: weights, Faulty.from_folder(checkpoint, [3]), version=7)
    assert f"version 7: 1 of {len(weights)}" in str(error.value)
    assert name in str(error.value)
    assert "first differs at [" in str(error.value)


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=5), st.integers(0, 31), st.data())
def test_a_checksum_changes_with_any_bit(values: list[float], bit: int, data: st.DataObject) -> None:
    tensor = torch.tensor(values)
    other = tensor.clone()
    place = data.draw(st.integers(0, len(values) - 1))
    other.view(torch.int32)[place] ^= 1 << bit if bit < 31 else -(1 << 31)
    assert tensor_checksum(tensor) != tensor_checksum(other)
    assert tensor_checksum(tensor) == tensor_checksum(tensor.clone())


def test_a_checksum_tells_types_and_shapes_apart() -> None:
    tensor = torch.arange(8, dtype=torch.float32)
    assert len({tensor_checksum(t) for t in (tensor, tensor.view(2, 4), tensor.view(torch.int32))}) == 3
    assert tensor_checksum(torch.zeros(4, 4).T[:2]) == tensor_checksum(torch.zeros(2, 4))
