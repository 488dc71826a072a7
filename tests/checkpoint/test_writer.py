from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.checkpoint.layout import INDEX_FILE
from nemotron_rl.checkpoint.new_folder import make_once, new_folder
from nemotron_rl.checkpoint.tensor_table import TensorSpec
from nemotron_rl.checkpoint.writer import ShardWriter, plan_shards
from nemotron_rl.errors import InputError
from tests.oracles.checkpoint_files import read_checkpoint

FULL_DEVICE = Path("/dev/full")


def _specs(sizes: list[int]) -> list[TensorSpec]:
    return [TensorSpec(f"t{i}", "U8", (size,)) for i, size in enumerate(sizes)]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=20), st.integers(1, 40))
def test_shards_keep_order_and_limit(sizes: list[int], limit: int) -> None:
    shards = plan_shards(_specs(sizes), limit)
    assert [t.name for shard in shards for t in shard.tensors] == [f"t{i}" for i in range(len(sizes))]
    for shard in shards:
        assert shard.tensors
        assert sum(t.nbytes for t in shard.tensors) <= limit or sum(t.nbytes > 0 for t in shard.tensors) == 1
    assert [shard.file for shard in shards] == [
        f"model-{n:05d}-of-{len(shards):05d}.safetensors" for n in range(1, len(shards) + 1)
    ]


def test_what_is_written_is_read_back_by_the_safetensors_library(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    specs = [TensorSpec("a", "F32", (2, 3)), TensorSpec("b", "U8", (5,)), TensorSpec("c", "F32", ())]
    a, b, c = np.arange(6, dtype="<f4"), np.arange(5, dtype="u1"), np.array(7, dtype="<f4")
    with ShardWriter(tmp_path, plan_shards(specs, 29)) as writer:
        writer.write("a", [a[:2].tobytes(), a[2:].tobytes()])
        writer.write("b", [b.tobytes()])
        writer.write("c", [c.tobytes()])
    first = safetensors.load_file(tmp_path / "model-00001-of-00002.safetensors")
    second = safetensors.load_file(tmp_path / "model-00002-of-00002.safetensors")
    assert np.array_equal(first["a"], a.reshape(2, 3)) and np.array_equal(first["b"], b) and second["c"] == 7
    index = json.loads((tmp_path / INDEX_FILE).read_text())
    assert index["metadata"]["total_size"] == 33
    assert index["weight_map"] == {
        "a": "model-00001-of-00002.safetensors",
        "b": "model-00001-of-00002.safetensors",
        "c": "model-00002-of-00002.safetensors",
    }
    assert set(read_checkpoint(tmp_path)) == {"a", "b", "c"}


@pytest.mark.parametrize("data", [b"123", b"12345"])
def test_a_tensor_of_the_wrong_size_is_a_fault_of_the_caller(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(ValueError, match="needs 4 bytes"), ShardWriter(tmp_path, plan_shards(_specs([4]), 9)) as writer:
        writer.write("t0", [data])


def test_tensors_out_of_order_or_left_out_are_a_fault_of_the_caller(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match="expected t0, got t1"),
        ShardWriter(tmp_path, plan_shards(_specs([1, 1]), 9)) as w,
    ):
        w.write("t1", [b"1"])
    with (
        pytest.raises(ValueError, match="1 tensors of the plan were not written"),
        ShardWriter(tmp_path, plan_shards(_specs([1]), 9)),
    ):
        pass
    assert not (tmp_path / INDEX_FILE).exists()


def test_a_shard_size_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="at least 1 byte"):
        plan_shards(_specs([1]), 0)


def test_a_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    with new_folder(tmp_path / "deep" / "dst") as partial:
        (partial / "file").write_text("x")
        assert not (tmp_path / "deep" / "dst").exists()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["dst"]
    assert (tmp_path / "deep" / "dst" / "file").read_text() == "x"


def test_a_folder_keeps_the_permissions_of_the_umask(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with new_folder(tmp_path / "dst"):
        pass
    assert (tmp_path / "dst").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_a_failed_folder_leaves_nothing(tmp_path: Path, failure: type[BaseException]) -> None:
    with pytest.raises(failure), new_folder(tmp_path / "deep" / "dst") as partial:
        (partial / "file").write_text("x")
        raise failure
    assert list(tmp_path.iterdir()) == []


def test_an_empty_folder_may_be_filled_and_a_full_one_may_not(tmp_path: Path) -> None:
    (tmp_path / "dst").mkdir()
    with new_folder(tmp_path / "dst") as partial:
        (partial / "file").write_text("x")
    with pytest.raises(InputError, match="not empty"), new_folder(tmp_path / "dst"):
        pass
    assert (tmp_path / "dst" / "file").read_text() == "x"


def test_a_destination_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="not a folder"), new_folder(tmp_path / "file"):
        pass
    with pytest.raises(InputError, match="may write to"), new_folder(tmp_path / "file" / "dst"):
        pass
    with pytest.raises(InputError, match=r"cannot write|may write"), new_folder(Path("/proc/dst")):
        pass


def test_a_folder_that_another_process_made_first_is_used(tmp_path: Path) -> None:
    def lose_the_race() -> None:
        with new_folder(tmp_path / "dst"), new_folder(tmp_path / "dst") as winner:
            (winner / "file").write_text("theirs")

    assert make_once(tmp_path / "dst", lose_the_race) == tmp_path / "dst"
    assert [path.name for path in tmp_path.rglob("*")] == ["dst", "file"]


@pytest.mark.skipif(not FULL_DEVICE.exists(), reason="needs a device that is always full")
def test_a_full_disk_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    shards = plan_shards(_specs([1 << 20]), 1 << 30)
    writer = ShardWriter(tmp_path, shards)
    with pytest.raises(InputError, match=r"model-00001-of-00001\.safetensors: No space left"), writer:
        writer._file, writer._open_shard = FULL_DEVICE.open("wb"), shards[0]
        writer.write("t0", [b"0" * (1 << 20)])
