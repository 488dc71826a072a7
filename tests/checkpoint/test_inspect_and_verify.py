from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.checkpoint.inspect import Inspection, inspect_checkpoint
from nemotron_rl.checkpoint.layout import INDEX_FILE
from nemotron_rl.checkpoint.synth import plan_synth
from nemotron_rl.checkpoint.verify import Comparison, verify_checkpoints
from nemotron_rl.errors import CheckpointError
from tests.oracles.checkpoint_files import Tensor, read_checkpoint, write_shard

Copier = Callable[[Path], Path]
CONFIG: dict[str, object] = {"hybrid_override_pattern": "*"}


def _folder(path: Path, tensors: dict[str, Tensor], config: dict[str, object] = CONFIG) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    write_shard(path / "model.safetensors", tensors)
    return path


def test_an_inspection_counts_what_synth_planned(tiny: Path) -> None:
    found = inspect_checkpoint(tiny)
    assert found.tally == plan_synth("tiny").tally
    assert (found.pattern, found.mtp_pattern, found.mtp_depth) == ("MEM*EM-EMEM*EM-E", "*E", 1)
    assert (found.architecture, found.files, found.problems) == ("NemotronHForCausalLM", 3, ())
    assert found.dtypes == {"BF16": 236, "F32": 7}
    assert Inspection.model_validate_json(found.model_dump_json()) == found


def test_an_inspection_lists_what_is_wrong(tiny: Path, tmp_path: Path) -> None:
    tensors = read_checkpoint(tiny)
    del tensors["backbone.norm_f.weight"]
    tensors["stray"] = ("U8", (1,), b"1")
    tensors["lm_head.weight"] = ("BF16", (128, 512), tensors["lm_head.weight"][2])
    bias = "backbone.layers.1.mixer.gate.e_score_correction_bias"
    tensors[bias] = ("BF16", (8,), bytes(16))
    found = inspect_checkpoint(_folder(tmp_path / "broken", tensors, json.loads((tiny / "config.json").read_text())))
    assert found.problems == (
        "1 tensors that the config promises are missing: backbone.norm_f.weight",
        "1 tensors are not part of the model that the config describes: stray",
        "1 tensors have another shape than the config says: lm_head.weight is [128, 512], expected [512, 128]",
        f"1 tensors have another dtype than the config says: {bias} is BF16, expected F32",
    )
    assert found.tally.by_block["other"].tensors == 1


def test_an_inspection_lists_broken_files_too(tiny: Path, copy_of: Copier) -> None:
    folder = copy_of(tiny)
    (folder / "model-00002-of-00003.safetensors").unlink()
    problems = inspect_checkpoint(folder).problems
    assert problems[0] == f"{INDEX_FILE} names model-00002-of-00003.safetensors, which is absent"
    assert "missing" in problems[1] and "more" in problems[1]


def test_a_checkpoint_equals_itself_in_other_shards(tiny: Path, tmp_path: Path) -> None:
    whole = _folder(tmp_path / "whole", read_checkpoint(tiny))
    seen: list[tuple[int, int]] = []
    found = verify_checkpoints(tiny, whole, lambda *state: seen.append(state))
    assert found.identical
    assert (found.tensors, found.nbytes) == (243, plan_synth("tiny").tally.total.nbytes)
    assert seen[-1] == (found.nbytes, found.nbytes)
    assert Comparison.model_validate_json(found.model_dump_json()) == found


@given(st.lists(st.integers(0, 3), min_size=1, max_size=24), st.data())
def test_the_first_difference_and_their_number_are_found(
    tmp_path_factory: pytest.TempPathFactory, values: list[int], data: st.DataObject
) -> None:
    left = np.array(values, dtype="<u2")
    right = np.array(data.draw(st.lists(st.integers(0, 3), min_size=len(values), max_size=len(values))), dtype="<u2")
    shape = data.draw(st.sampled_from([(len(values),), (1, len(values)), (len(values), 1)]))
    base = tmp_path_factory.mktemp("pair")
    found = verify_checkpoints(
        _folder(base / "a", {"x": ("BF16", shape, left.tobytes())}),
        _folder(base / "b", {"x": ("BF16", shape, right.tobytes())}),
    )
    unequal = [place for place in np.ndindex(*shape) if left.reshape(shape)[place] != right.reshape(shape)[place]]
    assert found.identical == (not unequal)
    if unequal:
        (difference,) = found.differing
        assert (difference.first_index, difference.elements) == (unequal[0], len(unequal))
        assert int(difference.a, 16) == left.reshape(shape)[unequal[0]]
        assert int(difference.b, 16) == right.reshape(shape)[unequal[0]]


def test_bits_are_compared_not_values(tmp_path: Path) -> None:
    zeros = (np.array([0.0], "<f4").tobytes(), np.array([-0.0], "<f4").tobytes())
    nan = np.array([np.nan], "<f4").tobytes()
    a = _folder(tmp_path / "a", {"zero": ("F32", (), zeros[0]), "nan": ("F32", (1,), nan)})
    b = _folder(tmp_path / "b", {"zero": ("F32", (), zeros[1]), "nan": ("F32", (1,), nan)})
    (difference,) = verify_checkpoints(a, b).differing
    assert (difference.name, difference.first_index, difference.a, difference.b) == (
        "zero",
        (),
        "0x00000000",
        "0x80000000",
    )


def test_missing_extra_shape_and_dtype_are_told_apart(tmp_path: Path) -> None:
    a = _folder(tmp_path / "a", {"l": ("U8", (2,), b"12"), "s": ("U8", (2, 1), b"12"), "t": ("I8", (2,), b"12")})
    b = _folder(tmp_path / "b", {"r": ("U8", (2,), b"12"), "s": ("U8", (1, 2), b"12"), "t": ("U8", (2,), b"12")})
    found = verify_checkpoints(a, b)
    assert (found.missing, found.extra, found.nbytes) == (("l",), ("r",), 0)
    assert [(d.name, d.kind, d.a, d.b) for d in found.differing] == [
        ("s", "shape", "[2, 1]", "[1, 2]"),
        ("t", "dtype", "I8", "U8"),
    ]


def test_differences_beyond_the_first_chunk_have_the_right_index(tmp_path: Path) -> None:
    size = (8 << 20) + 1000
    left, right = bytearray(size), bytearray(size)
    right[size - 4 :] = b"\1\0\0\0"
    a = _folder(tmp_path / "a", {"x": ("F32", (size // 4,), bytes(left))})
    b = _folder(tmp_path / "b", {"x": ("F32", (size // 4,), bytes(right))})
    (difference,) = verify_checkpoints(a, b).differing
    assert difference.first_index == (size // 4 - 1,)


def test_a_broken_side_is_refused(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere"):
        verify_checkpoints(tiny, tmp_path / "nowhere")
