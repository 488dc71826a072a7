"""Shards written in any order are those that the ordered writer makes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.checkpoint.any_order import AnyOrderWriter
from nemotron_rl.checkpoint.new_folder import new_folder
from nemotron_rl.checkpoint.tensor_table import TensorSpec
from nemotron_rl.checkpoint.writer import ShardWriter, plan_shards
from nemotron_rl.errors import InputError

SPECS = [TensorSpec("a", "BF16", (3, 2)), TensorSpec("b", "F32", ()), TensorSpec("c", "F32", (5,))]
SPECS += [TensorSpec("none", "BF16", (0, 4)), TensorSpec("d", "BF16", (7,))]
DATA = {spec.name: bytes((7 * place + k) % 251 for k in range(spec.nbytes)) for place, spec in enumerate(SPECS)}


@given(order=st.permutations(SPECS), shard_size=st.integers(1, 100))
def test_the_order_of_arrival_does_not_matter(
    tmp_path_factory: pytest.TempPathFactory, order: list[TensorSpec], shard_size: int
) -> None:
    one, other = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("other")
    shards = plan_shards(SPECS, shard_size)
    with ShardWriter(one, shards) as writer:
        for spec in SPECS:
            writer.write(spec.name, [DATA[spec.name]])
    with AnyOrderWriter(other, shards) as any_order:
        for spec in order:
            any_order.write(spec.name, memoryview(DATA[spec.name]))
    assert {f.name: f.read_bytes() for f in other.iterdir()} == {f.name: f.read_bytes() for f in one.iterdir()}


def test_faults_of_the_caller_are_told_and_leave_no_index(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="4 tensors of the plan were not written; the first is a"):  # noqa: SIM117
        with AnyOrderWriter(tmp_path, plan_shards(SPECS, 50)) as writer:
            writer.write("c", DATA["c"])
            with pytest.raises(ValueError, match="c is not in the plan, or was written before"):
                writer.write("c", DATA["c"])
            with pytest.raises(ValueError, match="a needs 12 bytes, got 20"):
                writer.write("a", DATA["c"])
            assert writer.missing == ["a", "b", "none", "d"]
    assert not (tmp_path / "model.safetensors.index.json").exists()


def test_a_folder_that_refuses_is_an_input_error(tmp_path: Path) -> None:
    (tmp_path / "model-00001-of-00001.safetensors").write_text("in the way")
    with pytest.raises(InputError, match=r"cannot write .*model-00001-of-00001.safetensors: File exists"):
        AnyOrderWriter(tmp_path, plan_shards(SPECS, 1000)).__enter__()


def test_a_writer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError),
        new_folder(tmp_path / "out") as folder,
        AnyOrderWriter(folder, plan_shards(SPECS, 9)),
    ):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
