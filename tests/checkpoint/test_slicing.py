from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nemotron_rl.checkpoint.inspect import inspect_checkpoint
from nemotron_rl.checkpoint.layout import INDEX_FILE, CheckpointFolder
from nemotron_rl.checkpoint.selection import Mtp
from nemotron_rl.checkpoint.slicing import PROVENANCE_FILE, slice_checkpoint
from nemotron_rl.errors import CheckpointError, InputError, SliceError
from tests.oracles.checkpoint_files import Tensor, read_checkpoint, sliced, write_shard

Copier = Callable[[Path], Path]
selections = st.permutations(range(16)).flatmap(lambda order: st.integers(1, 16).map(lambda size: list(order[:size])))


def carried_bytes(folder: Path) -> int:
    """Bytes of the files that a slice copies beside the tensors."""
    ours = {"config.json", INDEX_FILE}
    return sum(f.stat().st_size for f in folder.iterdir() if f.suffix != ".safetensors" and f.name not in ours)


@settings(max_examples=15)
@given(layers=selections.filter(lambda layers: {3, 11} & set(layers)), mtp=st.sampled_from(["keep", "drop"]),
       shard_size=st.integers(50_000, 10_000_000))  # fmt: skip
def test_a_slice_has_the_bytes_of_its_source(
    tiny: Path, tmp_path_factory: pytest.TempPathFactory, layers: list[int], mtp: Mtp, shard_size: int
) -> None:
    dst = tmp_path_factory.mktemp("slice") / "dst"
    seen: list[tuple[int, int]] = []
    report = slice_checkpoint(tiny, dst, layers, mtp, lambda *state: seen.append(state), shard_size=shard_size)
    wanted = sliced(read_checkpoint(tiny), layers, mtp == "keep")
    assert read_checkpoint(dst) == wanted
    assert report.tally.total.tensors == len(wanted)
    assert seen[-1][0] == seen[-1][1] == report.tally.total.nbytes + carried_bytes(tiny)
    found = inspect_checkpoint(dst)
    assert found.problems == ()
    assert found.pattern == "".join("MEM*EM-EMEM*EM-E"[layer] for layer in layers)
    assert (found.mtp_pattern, found.mtp_depth) == (("*E", 1) if mtp == "keep" else ("", 0))


def test_the_default_slice_of_tiny(tiny: Path, tmp_path: Path) -> None:
    report = slice_checkpoint(tiny, tmp_path / "dst", [0, 1, 3, 4], source_name="synth://tiny")
    config = json.loads((tmp_path / "dst" / "config.json").read_text())
    assert report.pattern == "ME*E/*E"
    assert config["hybrid_override_pattern"] == "ME*E"
    assert config["layers_block_type"] == ["mamba", "moe", "attention", "moe"]
    assert config["num_hidden_layers"] == 4
    assert config["mtp_hybrid_override_pattern"] == "*E"


def test_all_layers_and_the_head_are_a_copy(tiny: Path, tmp_path: Path) -> None:
    slice_checkpoint(tiny, tmp_path / "dst", None)
    assert read_checkpoint(tmp_path / "dst") == read_checkpoint(tiny)
    assert json.loads((tmp_path / "dst" / "config.json").read_text()) == json.loads((tiny / "config.json").read_text())


def test_other_files_are_carried_over_and_weights_of_other_formats_are_not(
    tiny: Path, copy_of: Copier, tmp_path: Path
) -> None:
    source = copy_of(tiny)
    for name in ("LICENSE", "README.md", "modeling_nemotron_h.py", "pytorch_model.bin", ".gitattributes"):
        (source / name).write_text(name)
    (source / "figures").mkdir()
    slice_checkpoint(source, tmp_path / "dst", [3])
    written = {file.name: file.read_bytes() for file in (tmp_path / "dst").iterdir() if file.suffix != ".safetensors"}
    ours = {"config.json", INDEX_FILE, PROVENANCE_FILE}
    dropped = {"pytorch_model.bin", ".gitattributes"}
    carried = {f.name for f in source.iterdir() if f.is_file() and f.suffix != ".safetensors"} - dropped - ours
    assert set(written) == carried | ours
    assert all(written[name] == (source / name).read_bytes() for name in carried)


def test_provenance_names_the_source_and_no_path(tiny: Path, tmp_path: Path) -> None:
    slice_checkpoint(tiny, tmp_path / "one", [0, 3, 4])
    slice_checkpoint(tmp_path / "one", tmp_path / "two", [1], "drop", source_name="s3://bucket/one")
    text = (tmp_path / "two" / PROVENANCE_FILE).read_text()
    account = json.loads(text)
    assert (account["source"], account["layers"], account["mtp"]) == ("s3://bucket/one", [1], "drop")
    assert account["source_slice"]["source"] == "tiny"
    assert account["source_slice"]["source_pattern"] == "MEM*EM-EMEM*EM-E/*E"
    assert str(tmp_path) not in text


@pytest.mark.parametrize("spelling", ["hybrid_override_pattern", "layers_block_type"])
def test_every_spelling_gives_the_same_slice(tiny: Path, copy_of: Copier, tmp_path: Path, spelling: str) -> None:
    source = copy_of(tiny)
    config = json.loads((source / "config.json").read_text())
    for key in {"hybrid_override_pattern", "layers_block_type", "num_hidden_layers"} - {spelling}:
        config.pop(key)
    (source / "config.json").write_text(json.dumps(config))
    slice_checkpoint(source, tmp_path / "one", [0, 3])
    slice_checkpoint(tiny, tmp_path / "two", [0, 3])
    one, two = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("one", "two"))
    assert one == two
    assert read_checkpoint(tmp_path / "one") == read_checkpoint(tmp_path / "two")


@pytest.mark.parametrize("layers", [[0, 99], [3, 3], [-1, 3], [], [0, 1]])
def test_a_refused_slice_leaves_nothing(tiny: Path, tmp_path: Path, layers: list[int]) -> None:
    with pytest.raises(SliceError):
        slice_checkpoint(tiny, tmp_path / "dst", layers)
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_lacks_a_promised_tensor_is_refused(tiny: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "config.json").write_bytes((tiny / "config.json").read_bytes())
    tensors = read_checkpoint(tiny)
    for name in [name for name in tensors if name.startswith("mtp.")]:
        del tensors[name]
    write_shard(source / "model.safetensors", tensors)
    with pytest.raises(CheckpointError, match=r"lacks 32 tensors.*'mtp\.layers\.0\.eh_proj\.weight'.*--mtp drop"):
        slice_checkpoint(source, tmp_path / "dst", [3])
    assert not (tmp_path / "dst").exists()
    slice_checkpoint(source, tmp_path / "dst", [3], "drop")
    assert inspect_checkpoint(tmp_path / "dst").problems == ()


def test_tensors_that_the_table_does_not_know_are_kept(tiny: Path, copy_of: Copier, tmp_path: Path) -> None:
    source = copy_of(tiny)
    scale: dict[str, Tensor] = {"backbone.layers.3.mixer.k_proj.k_scale": ("F32", (), b"1234")}
    write_shard(source / "model-extra.safetensors", scale)
    index = json.loads((source / INDEX_FILE).read_text())
    index["weight_map"] |= dict.fromkeys(scale, "model-extra.safetensors")
    (source / INDEX_FILE).write_text(json.dumps(index))
    slice_checkpoint(source, tmp_path / "dst", [3])
    assert CheckpointFolder.open(tmp_path / "dst").tensors["backbone.layers.0.mixer.k_proj.k_scale"].shape == ()


def test_a_taken_destination_is_refused_and_left_alone(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "dst").mkdir()
    (tmp_path / "dst" / "mine").write_text("x")
    with pytest.raises(InputError, match="not empty"):
        slice_checkpoint(tiny, tmp_path / "dst", [3])
    with pytest.raises(InputError, match="not empty"):
        slice_checkpoint(tiny, tiny, [3])
    assert [file.name for file in (tmp_path / "dst").iterdir()] == ["mine"]
