from __future__ import annotations

import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.checkpoint.ahead import run_ahead
from nemotron_rl.checkpoint.dtypes import itemsize
from nemotron_rl.checkpoint.layout import TensorEntry, read_checkpoint, source_layout
from nemotron_rl.checkpoint.ranged.folder import FolderSource
from nemotron_rl.checkpoint.streaming import plan_pieces, stream_tensors
from tests.oracles import checkpoint_files as oracle


@given(order=st.permutations(range(12)), piece_bytes=st.integers(1, 40_000))
def test_tensors_come_whole_and_in_order_however_they_are_cut(tiny: Path, order: list[int], piece_bytes: int) -> None:
    source = FolderSource(tiny)
    entries = list(read_checkpoint(source)[1].values())
    chosen = [entries[place * 19] for place in order]
    got: dict[str, bytes] = {}
    for entry, chunk in stream_tensors(source, chosen, piece_bytes=max(piece_bytes, 1000)):
        assert len(chunk) % itemsize(entry.dtype) == 0
        got[entry.name] = got.get(entry.name, b"") + bytes(chunk)
    everything = oracle.read_checkpoint(tiny)
    assert list(got.items()) == [(entry.name, everything[entry.name][2]) for entry in chosen]


entries = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["U8", "BF16", "F64"]), st.integers(0, 30), st.integers(0, 3)),
    max_size=12,
)


@given(entries, st.integers(1, 64))
def test_pieces_are_short_and_miss_nothing(kinds: list[tuple[str, str, int, int]], piece_bytes: int) -> None:
    ends = {"a": 0, "b": 0}
    tensors = []
    for number, (file, dtype, count, gap) in enumerate(kinds):
        start, size = ends[file] + gap, count * itemsize(dtype)
        tensors.append(TensorEntry(str(number), file, dtype, (count,), start, size))
        ends[file] = start + size
    cuts = []
    for piece in plan_pieces(tensors, piece_bytes):
        assert len({cut.entry.file for cut in piece}) == 1
        assert all(before.start + before.size == after.start for before, after in pairwise(piece))
        assert sum(cut.size for cut in piece) <= max(piece_bytes, 8)
        cuts += piece
    bytes_of = [(cut.entry.name, place) for cut in cuts for place in range(cut.start, cut.start + cut.size)]
    assert bytes_of == [(t.name, place) for t in tensors for place in range(t.offset, t.offset + t.nbytes)]
    assert all(cut.size % itemsize(cut.entry.dtype) == 0 for cut in cuts)


def test_neighbours_share_a_request(tiny: Path) -> None:
    tensors = read_checkpoint(FolderSource(tiny))[1].values()
    assert len(list(plan_pieces(tensors, 1 << 20))) <= 2 * len(list(tiny.glob("*.safetensors"))) < len(tensors)


def test_memory_does_not_grow_with_the_tensors(tmp_path: Path) -> None:
    size = 64 << 20
    oracle.write_shard(tmp_path / "model.safetensors", {"x": ("BF16", (size // 2,), bytes(size))})
    (entry,) = source_layout(FolderSource(tmp_path)).tensors.values()
    tracemalloc.start()
    for _, chunk in stream_tensors(FolderSource(tmp_path), [entry], 1 << 20):
        assert not any(chunk[:1])
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()


def test_work_ahead_is_bounded_and_in_order() -> None:
    begun: list[int] = []
    results = run_ahead((lambda n=n: begun.append(n) or n for n in range(100)), 3)
    assert next(results) == 0
    results.close()
    assert len(begun) <= 5
    assert list(run_ahead((lambda n=n: n for n in range(100)), 3)) == list(range(100))


def test_a_failure_comes_where_its_result_would_be() -> None:
    def task(number: int) -> int:
        if number == 2:
            raise ValueError(number)
        return number

    results = run_ahead((lambda n=n: task(n) for n in range(5)), 2)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match="2"):
        next(results)
