from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemotron_rl.checkpoint.layout import INDEX_FILE, CheckpointFolder, read_layout
from nemotron_rl.errors import CheckpointError
from tests.oracles.checkpoint_files import read_checkpoint, read_shard, write_shard

Copier = Callable[[Path], Path]


def _edit_index(folder: Path, edit: Callable[[dict[str, str]], object]) -> None:
    index = json.loads((folder / INDEX_FILE).read_text())
    edit(index["weight_map"])
    (folder / INDEX_FILE).write_text(json.dumps(index))


def test_tensors_are_what_the_files_hold(tiny: Path) -> None:
    folder = CheckpointFolder.open(tiny)
    wanted = read_checkpoint(tiny)
    assert set(folder.tensors) == set(wanted)
    for name, (dtype, shape, data) in wanted.items():
        entry = folder.tensors[name]
        assert (entry.dtype, entry.shape, entry.nbytes) == (dtype, shape, len(data))
        assert b"".join(folder.raw(name, chunk_bytes=1000)) == data
        assert folder.read(name).tobytes() == data
    assert folder.pattern.main == "MEM*EM-EMEM*EM-E"


def test_arrays_have_the_tensors_type(tiny: Path) -> None:
    folder = CheckpointFolder.open(tiny)
    assert folder.read("backbone.embeddings.weight").dtype.name == "bfloat16"
    assert folder.read("backbone.layers.1.mixer.gate.e_score_correction_bias").dtype == np.float32


def test_one_file_needs_no_index(tiny: Path, copy_of: Copier) -> None:
    folder = copy_of(tiny)
    everything = read_checkpoint(folder)
    for file in [*folder.glob("*.safetensors"), folder / INDEX_FILE]:
        file.unlink()
    write_shard(folder / "model.safetensors", everything)
    assert set(CheckpointFolder.open(folder).tensors) == set(everything)


def _cut(folder: Path) -> None:
    path = folder / "model-00002-of-00003.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def _remove(folder: Path) -> None:
    (folder / "model-00002-of-00003.safetensors").unlink()


def _promise_more(folder: Path) -> None:
    _edit_index(folder, lambda names: names.update(ghost="model-00001-of-00003.safetensors"))


def _forget_one(folder: Path) -> None:
    _edit_index(folder, lambda names: names.pop("lm_head.weight"))


def _move_one(folder: Path) -> None:
    _edit_index(folder, lambda names: names.update({"lm_head.weight": "model-00001-of-00003.safetensors"}))


def _repeat_one(folder: Path) -> None:
    shard = folder / "model-00003-of-00003.safetensors"
    write_shard(shard, read_shard(shard) | {"backbone.embeddings.weight": ("F32", (1,), b"1234")})


def _add_stray(folder: Path) -> None:
    write_shard(folder / "model-00004-of-00004.safetensors", {"x": ("F32", (1,), b"1234")})


def _climb(folder: Path) -> None:
    _edit_index(folder, lambda names: names.update({"lm_head.weight": "../outside.safetensors"}))


def _break_index(folder: Path) -> None:
    (folder / INDEX_FILE).write_text("{")


def _empty_index(folder: Path) -> None:
    (folder / INDEX_FILE).write_text('{"weight_map": {}}')


def _no_weights(folder: Path) -> None:
    for file in [*folder.glob("*.safetensors"), folder / INDEX_FILE]:
        file.unlink()


def _break_config(folder: Path) -> None:
    (folder / "config.json").write_text("[]")


def _no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


@pytest.mark.parametrize(
    ("breaks", "says"),
    [
        (_cut, ["model-00002-of-00003.safetensors", "truncated"]),
        (_remove, [INDEX_FILE, "names model-00002-of-00003.safetensors", "absent"]),
        (_promise_more, ["'ghost'", "model-00001-of-00003.safetensors", "does not hold it"]),
        (_forget_one, ["'lm_head.weight'", f"{INDEX_FILE} does not name it"]),
        (_move_one, ["'lm_head.weight' in model-00001", "but it is in model-0000"]),
        (_repeat_one, ["'backbone.embeddings.weight' is in two shards", "00001", "00003"]),
        (_add_stray, ["model-00004-of-00004.safetensors", "does not name"]),
        (_climb, ["'../outside.safetensors'", "plain name"]),
        (_break_index, [INDEX_FILE, "not valid JSON"]),
        (_empty_index, ["weight_map"]),
        (_no_weights, ["no weights", INDEX_FILE, "model.safetensors"]),
        (_break_config, ["config.json", "JSON object"]),
        (_no_config, ["config.json", "there is no such file"]),
    ],
)
def test_a_broken_folder_is_refused_with_names(
    tiny: Path, copy_of: Copier, breaks: Callable[[Path], None], says: list[str]
) -> None:
    folder = copy_of(tiny)
    breaks(folder)
    with pytest.raises(CheckpointError) as refused:
        CheckpointFolder.open(folder)
    for part in says:
        assert part in str(refused.value)


@pytest.mark.parametrize(
    "file", ["/etc/x.safetensors", "a/b.safetensors", "a\\b.safetensors", ".safetensors", "x.bin", "", 1]
)
def test_an_index_can_only_name_plain_files(tiny: Path, copy_of: Copier, file: object) -> None:
    folder = copy_of(tiny)
    (folder / INDEX_FILE).write_text(json.dumps({"weight_map": {"a": file}}))
    with pytest.raises(CheckpointError, match="plain name"):
        read_layout(folder)


anything = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from(["model-00001-of-00003.safetensors", "../x.safetensors", "model.safetensors"])
)


@given(weight_map=anything | st.dictionaries(st.sampled_from(["lm_head.weight", "x", ""]), anything))
def test_any_index_is_read_or_refused(tiny: Path, tmp_path_factory: pytest.TempPathFactory, weight_map: object) -> None:
    folder = tmp_path_factory.mktemp("any")
    (folder / "model-00001-of-00003.safetensors").symlink_to(tiny / "model-00001-of-00003.safetensors")
    (folder / INDEX_FILE).write_text(json.dumps({"weight_map": weight_map}))
    try:
        layout = read_layout(folder)
    except CheckpointError:
        return
    assert layout.problems


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"no checkpoint folder {tmp_path / 'none'}"):
        CheckpointFolder.open(tmp_path / "none")


def test_an_absent_shard_is_one_problem_not_one_per_tensor(tiny: Path, copy_of: Copier) -> None:
    folder = copy_of(tiny)
    _remove(folder)
    assert len(read_layout(folder).problems) == 1


def test_an_unknown_tensor_is_named(tiny: Path) -> None:
    with pytest.raises(CheckpointError, match="no tensor 'nope'"):
        CheckpointFolder.open(tiny).read("nope")
