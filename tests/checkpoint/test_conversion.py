"""The record of a conversion: whether a result is there already, and whether its files are what was written."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from nemotron_rl.checkpoint.conversion import (
    RECORD_FILE,
    ConversionRecord,
    FileDigest,
    check_unchanged,
    combined,
    digest_files,
    is_there_already,
)
from nemotron_rl.checkpoint.converted import open_converted, source_tensors, write_source_tensors
from nemotron_rl.errors import CheckpointError, InputError


@pytest.fixture
def converted(tmp_path: Path, four_layers: Path) -> Path:
    """A folder that looks like a conversion of `four_layers`."""
    folder = tmp_path / "converted"
    (folder / "torch_dist").mkdir(parents=True)
    for name, data in ((".metadata", b"meta"), ("metadata.json", b"{}"), ("__0_0.distcp", b"weights")):
        (folder / "torch_dist" / name).write_bytes(data)
    (folder / "config.json").write_bytes((four_layers / "config.json").read_bytes())
    write_source_tensors(four_layers, folder)
    record(folder, "1" * 64).write(folder)
    return folder


def record(folder: Path, source_digest: str) -> ConversionRecord:
    files = digest_files(folder)
    return ConversionRecord(format="torch_dist", source="s", source_digest=source_digest, files=files, versions={})


def test_every_file_that_counts_is_digested_once(converted: Path) -> None:
    (converted / "unused.bin").write_bytes(b"weights of another kind")
    told: list[tuple[int, int]] = []
    files = digest_files(converted, lambda done, total: told.append((done, total)))
    assert files.keys() == {
        "config.json", "tensors.json", "torch_dist/.metadata", "torch_dist/metadata.json", "torch_dist/__0_0.distcp"
    }  # fmt: skip
    assert files["torch_dist/__0_0.distcp"] == FileDigest(size=7, sha256=hashlib.sha256(b"weights").hexdigest())
    assert max(told)[0] == max(told)[1] == sum(file.size for file in files.values())


def test_the_digest_of_a_checkpoint_tells_any_change(four_layers: Path) -> None:
    files = digest_files(four_layers)
    assert {"config.json", "model.safetensors.index.json", "tokenizer.json"} < files.keys()
    assert any(name.endswith(".safetensors") for name in files)
    digest = combined(files)
    for name, file in files.items():
        assert combined(files | {name: file.model_copy(update={"sha256": "0" * 64})}) != digest
        assert combined({other: files[other] for other in files if other != name}) != digest
    assert combined(dict(reversed(files.items()))) == digest


def test_a_second_conversion_of_the_same_is_there_already(converted: Path, tmp_path: Path) -> None:
    assert is_there_already(converted, "torch_dist", "1" * 64)
    assert not is_there_already(tmp_path / "absent", "torch_dist", "1" * 64)
    (tmp_path / "empty").mkdir()
    assert not is_there_already(tmp_path / "empty", "torch_dist", "1" * 64)


def test_another_source_format_or_a_broken_result_is_refused(converted: Path) -> None:
    with pytest.raises(InputError, match="holds the conversion of s to torch_dist, not of this source to torch_dist"):
        is_there_already(converted, "torch_dist", "2" * 64)
    with pytest.raises(InputError, match="not of this source to hf"):
        is_there_already(converted, "hf", "1" * 64)
    (converted / "torch_dist" / "__0_0.distcp").write_bytes(b"short")
    with pytest.raises(InputError, match=r"__0_0\.distcp is missing or has another size"):
        is_there_already(converted, "torch_dist", "1" * 64)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda file: file.unlink(), r"__0_0\.distcp is missing"),
        (lambda file: file.write_bytes(b"short"), r"__0_0\.distcp is damaged: it has 5 of 7 bytes"),
        (lambda file: file.write_bytes(b"weightz"), r"__0_0\.distcp is damaged: its SHA-256 is"),
    ],
)
def test_damage_is_found_and_named(converted: Path, damage, message: str) -> None:
    check_unchanged(converted, digest_files(converted))
    damage(converted / "torch_dist" / "__0_0.distcp")
    with pytest.raises(CheckpointError, match=message):
        check_unchanged(converted, digest_files(converted))


def test_a_folder_without_record_is_not_compared_and_a_broken_record_is_an_error(converted: Path) -> None:
    (converted / RECORD_FILE).write_text('{"format": 3}')
    with pytest.raises(CheckpointError, match=f"{RECORD_FILE} is not the record of a conversion"):
        check_unchanged(converted, {})
    (converted / RECORD_FILE).unlink()
    check_unchanged(converted, {})


def test_the_sources_tensors_are_kept(converted: Path, four_layers: Path) -> None:
    kept = [(spec.name, spec.dtype, spec.shape) for spec in source_tensors(converted)]
    assert kept == [(spec.name, spec.dtype, spec.shape) for spec in source_tensors(four_layers)]
    assert open_converted(converted)["hybrid_override_pattern"] == "ME*E"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        ("{", "is not valid JSON"),
        ("[]", "should list the source's tensors"),
        ('{"a": 1}', "should list the source's tensors"),
        ('[{"name": "a", "dtype": [], "shape": [1]}]', "should list the source's tensors"),
        ('[{"name": "a", "dtype": "F32", "shape": [-1]}]', "should list the source's tensors"),
        (json.dumps([{"name": "a", "dtype": "F32", "shape": [1]}] * 2), "names a tensor twice"),
    ],
)
def test_a_broken_list_of_tensors_is_named(converted: Path, content: str | None, message: str) -> None:
    file = converted / "tensors.json"
    file.unlink() if content is None else file.write_text(content)
    with pytest.raises(CheckpointError, match=message) as raised:
        open_converted(converted)
    assert "tensors.json" in str(raised.value)


def test_a_checkpoint_is_not_a_converted_folder(four_layers: Path) -> None:
    with pytest.raises(CheckpointError, match="has no folder torch_dist"):
        open_converted(four_layers)
