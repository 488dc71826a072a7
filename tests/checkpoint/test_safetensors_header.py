from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nemotron_rl.checkpoint.dtypes import NUMPY_DTYPES, itemsize
from nemotron_rl.checkpoint.safetensors_header import format_header, parse_header, read_header
from nemotron_rl.errors import CheckpointError

names = st.text(min_size=1, max_size=12).filter(lambda name: name != "__metadata__")
shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)
tensors = st.dictionaries(names, st.tuples(st.sampled_from(list(NUMPY_DTYPES)), shapes), max_size=6)


def _tensor(dtype: str = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def _text(header: Any) -> bytes:
    return json.dumps(header).encode()


@given(tensors, st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2))
def test_a_written_header_is_read_back(
    wanted: dict[str, tuple[str, tuple[int, ...]]], metadata: dict[str, str]
) -> None:
    blob = format_header([(name, *kind) for name, kind in wanted.items()], metadata)
    (length,) = struct.unpack("<Q", blob[:8])
    assert length == len(blob) - 8 and len(blob) % 8 == 0
    sizes = {}
    for name, (dtype, shape) in wanted.items():
        sizes[name] = itemsize(dtype)
        for axis in shape:
            sizes[name] *= axis
    header = parse_header(blob[8:], sum(sizes.values()), "file")
    assert {e.name: (e.dtype, e.shape, e.end - e.start) for e in header.entries} == {
        name: (*kind, sizes[name]) for name, kind in wanted.items()
    }
    assert dict(header.metadata) == metadata


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ([], "not a JSON object"),
        ({"a": 1}, "exactly dtype"),
        ({"a": _tensor() | {"more": 1}}, "exactly dtype"),
        ({"a": _tensor("F4")}, "unknown dtype 'F4'"),
        ({"a": _tensor(shape=(-2,))}, "shape"),
        ({"a": _tensor(shape=(True,), offsets=(0, 4))}, "shape"),
        ({"a": _tensor(shape=(1 << 70,))}, "shape"),
        ({"a": _tensor(shape=[2] * 65)}, "shape"),
        ({"a": _tensor(offsets=(8, 0))}, "data_offsets"),
        ({"a": _tensor(offsets=(0,))}, "data_offsets"),
        ({"a": _tensor(shape=(3,))}, "needs 12 bytes"),
        ({"a": _tensor(shape=(4,), offsets=(0, 16))}, "truncated"),
        ({"a": _tensor(), "b": _tensor()}, "'b' overlaps"),
        ({"a": _tensor(shape=(1,), offsets=(4, 8))}, "'a' leaves a gap"),
        ({"a": _tensor(shape=(1,), offsets=(0, 4))}, "4 bytes at its end"),
        ({"__metadata__": {"a": 1}}, "__metadata__"),
        ({"__metadata__": []}, "__metadata__"),
    ],
)  # fmt: skip
def test_a_broken_header_is_refused_with_file_and_tensor(header: Any, says: str) -> None:
    with pytest.raises(CheckpointError, match=says) as refused:
        parse_header(_text(header), 8, "model-1.safetensors")
    assert str(refused.value).startswith("model-1.safetensors: ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"{", "JSON"),
        (b"\xff", "JSON"),
        (b"[" * 100_000, "64 levels"),
        (b'{"a": 1' + b"0" * 5000 + b"}", "thousands of digits"),
        (b"", "JSON|exactly"),
    ],
)
def test_what_is_not_json_is_refused(text: bytes, says: str) -> None:
    with pytest.raises(CheckpointError, match=says):
        parse_header(text, 8, "file")


def test_a_name_that_occurs_twice_is_refused() -> None:
    one = json.dumps(_tensor())
    with pytest.raises(CheckpointError, match="'a' occurs twice"):
        parse_header(f'{{"a": {one}, "a": {one}}}'.encode(), 8, "file")


@pytest.mark.parametrize("length", [9, 1 << 20, (1 << 63) + 1, (1 << 64) - 1])
def test_an_absurd_length_is_refused_before_anything_is_read(tmp_path: Path, length: int) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", length) + b"{}      ")
    with pytest.raises(CheckpointError, match=r"model\.safetensors: .*truncated"):
        read_header(path)


@pytest.mark.parametrize("data", [b"", b"1234567"])
def test_a_file_without_room_for_a_length_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "m").write_bytes(data)
    with pytest.raises(CheckpointError, match="truncated"):
        read_header(tmp_path / "m")


@settings(max_examples=300)
@given(st.binary(max_size=60), tensors, st.integers(0, 40), st.data())
@example(b'{"a":{"dtype":"F32","shape":[1e400],"data_offsets":[0,4]}}', {}, 0, None)
def test_any_bytes_are_read_or_refused(noise: bytes, wanted: Any, data_bytes: int, data: Any) -> None:
    text = noise
    if data is not None and wanted:
        changed = bytearray(format_header([(name, *kind) for name, kind in wanted.items()], {})[8:])
        place = data.draw(st.integers(0, len(changed) - 1))
        changed[place : place + 1] = noise[:1]
        text = bytes(changed)
    try:
        header = parse_header(text, data_bytes, "file")
    except CheckpointError:
        return
    assert sum(entry.end - entry.start for entry in header.entries) == data_bytes
