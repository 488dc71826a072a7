"""Manifests and digests."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nemotron_rl.store import FileEntry, Manifest, artifact_digest
from nemotron_rl.store.manifest import portable_path

hex64 = st.text("0123456789abcdef", min_size=64, max_size=64)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(st.text(max_size=8), json_values, max_size=4)
names = st.text("abz09._-ü ", min_size=1, max_size=6).filter(lambda name: name not in (".", ".."))
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
entries = st.builds(FileEntry, path=paths, size=st.integers(0, 2**45), sha256=hex64)


def manifest(files: tuple[FileEntry, ...], **more: object) -> Manifest:
    known = {"kind": "slice", "digest": "0" * 64, "attempt": "0" * 16, "inputs": (), "settings": {}, "facts": {}}
    return Manifest.model_validate(known | {"versions": {}, "created": datetime.now(UTC), "files": files} | more)


@given(entries, st.lists(hex64, max_size=3), json_objects, json_objects)
def test_a_manifest_survives_being_written_and_read(entry, inputs, settings, facts):
    written = manifest((entry,), inputs=tuple(inputs), settings=settings, facts=facts)
    assert Manifest.model_validate_json(written.model_dump_json(indent=1)) == written


@given(st.text())
def test_a_portable_path_never_leaves_its_folder(text):
    try:
        path = portable_path(text)
    except ValueError:
        return
    parts = path.split("/")
    assert path and not path.startswith("/") and ".." not in parts and "." not in parts and "" not in parts


@pytest.mark.parametrize(
    "path", ["../x", "a/../../x", "/etc/passwd", "", ".", "a//b", "a\\..\\b", "a\0b", "a\nb", "a/"]
)
def test_a_manifest_refuses_a_path_that_leaves_the_artifact(path):
    with pytest.raises(ValidationError, match="not a plain relative path"):
        FileEntry(path=path, size=0, sha256="0" * 64)


@pytest.mark.parametrize("paths", [("a", "a"), ("a", "a/b")])
def test_a_manifest_refuses_paths_that_cannot_exist_together(paths):
    with pytest.raises(ValidationError, match="same path"):
        manifest(tuple(FileEntry(path=path, size=0, sha256="0" * 64) for path in paths))


def test_an_artifact_without_files_is_refused():
    with pytest.raises(ValidationError, match="at least 1"):
        manifest(())


def test_a_fact_that_is_not_finite_becomes_null():
    written = manifest((FileEntry(path="a", size=0, sha256="0" * 64),), facts={"loss": float("nan")})
    assert json.loads(written.model_dump_json())["facts"] == {"loss": None}


@given(st.lists(hex64, max_size=3), json_objects)
def test_a_digest_depends_on_values_and_not_on_the_order_of_keys(inputs, settings):
    backwards = dict(reversed(settings.items()))
    assert artifact_digest("slice", inputs, settings) == artifact_digest("slice", tuple(inputs), backwards)


@given(json_objects, json_objects)
def test_different_settings_have_different_digests(one, other):
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (artifact_digest("slice", [], one) == artifact_digest("slice", [], other)) is same


def test_a_digest_depends_on_kind_and_on_the_order_of_inputs():
    a, b = "a" * 64, "b" * 64
    digests = [artifact_digest(kind, inputs, {}) for kind in ("slice", "train") for inputs in ([a, b], [b, a], [a], [])]
    assert len(set(digests)) == len(digests)


def test_the_digest_of_given_arguments_never_changes():
    assert artifact_digest("slice", ["0" * 64], {"layers": [0, 1, 7, 8], "mtp": "keep"}) == (
        "2a1027b5d2c663cc9cface15d3fc3aeff67ad3d3c90ccc78d03d47dd98697dd4"
    )


def test_a_setting_that_is_not_json_has_no_digest():
    with pytest.raises(ValueError, match="JSON"):
        artifact_digest("slice", [], {"lr": float("nan")})
