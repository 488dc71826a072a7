"""The store: what is committed is found and fetched bit for bit, and nothing half-written ever is."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nemotron_rl.config.run import StoreSettings
from nemotron_rl.errors import InputError, StoreError
from nemotron_rl.store import Artifact, ArtifactStore, artifact_digest, open_store

DIGEST = artifact_digest("slice", [], {"layers": [0]})


def commit(store: ArtifactStore, folder: Path) -> Artifact:
    return store.commit(folder, kind="slice", digest=DIGEST, inputs=[], settings={"layers": [0]}, facts={"tensors": 3})


def contents(folder: Path) -> dict[str, str]:
    """sha256 by path: the oracle of what an artifact holds."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def test_what_is_committed_is_found_and_fetched_bit_for_bit(store, folder):
    artifact = commit(store, folder)
    assert store.find("slice", DIGEST) == artifact
    assert contents(store.fetch(artifact)) == contents(folder)
    manifest = store.manifest(artifact)
    assert {entry.path: entry.sha256 for entry in manifest.files} == contents(folder)
    assert manifest.facts == {"tensors": 3} and manifest.settings == {"layers": [0]}
    assert manifest.versions["python"].startswith("3.12")


def test_an_artifact_that_was_never_committed_does_not_exist(store):
    assert store.find("slice", DIGEST) is None
    with pytest.raises(StoreError, match="does not exist"):
        store.manifest(Artifact(kind="slice", digest=DIGEST, uri=f"{store.uri}/slice/{DIGEST}"))


def test_a_second_commit_of_the_same_digest_returns_the_first(store, folder):
    commit(store, folder)
    before = contents(store.fetch(commit(store, folder)))
    (folder / "empty").write_text("other bytes")
    assert contents(store.fetch(commit(store, folder))) == before


def test_of_two_writers_at_once_one_wins_and_the_other_leaves_nothing(store, folder, tmp_path, objects_of):
    together = threading.Barrier(2, timeout=60)

    class Late(ArtifactStore):
        """Meets its rival after both have looked for the artifact and before either has written its manifest."""

        def _upload(self, *args):
            together.wait()
            entries = super()._upload(*args)
            together.wait()
            return entries

    other = tmp_path / "other"
    other.mkdir()
    (other / "only-in-the-other").write_text("different bytes")
    rivals = [Late(store._objects, tmp_path / f"cache-{i}") for i in range(2)]
    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(commit, rivals, [folder, other])

    assert one == two
    kept = contents(store.fetch(one))
    assert kept in (contents(folder), contents(other))
    assert len(objects_of(store)) == len(kept) + 1, "files of the winner and one manifest"


def test_a_writer_killed_midway_leaves_nothing_that_exists(store, folder, objects_of):
    script = """
import os, sys, signal
from pathlib import Path
from nemotron_rl.config.run import StoreSettings
from nemotron_rl.store import ArtifactStore, open_store
uri, endpoint, folder, digest = sys.argv[1:]
store = open_store(StoreSettings(endpoint=endpoint or None), uri, Path("unused"))
store._objects.create = lambda name, data: os.kill(os.getpid(), signal.SIGKILL) if name.endswith("json") else True
store.commit(Path(folder), kind="slice", digest=digest, inputs=[], settings={}, facts={})
"""
    endpoint = store._objects._backend.config["endpoint"] if store.uri.startswith("s3:") else ""
    ended = subprocess.run([sys.executable, "-c", script, store.uri, endpoint, str(folder), DIGEST], timeout=60)
    assert ended.returncode == -9
    assert objects_of(store), "it had uploaded its files"
    assert store.find("slice", DIGEST) is None
    assert contents(store.fetch(commit(store, folder))) == contents(folder), "the next writer is not disturbed"


def test_a_commit_that_fails_removes_what_it_uploaded(store, folder, objects_of, monkeypatch):
    upload = store._objects.upload

    def fail_late(source: Path, name: str):
        if name.endswith("weights.safetensors"):
            raise StoreError("the network is gone")
        return upload(source, name)

    monkeypatch.setattr(store._objects, "upload", fail_late)
    with pytest.raises(StoreError, match="network is gone"):
        commit(store, folder)
    assert objects_of(store) == set()
    assert store.find("slice", DIGEST) is None


@pytest.mark.parametrize("damage", ["missing", "truncated", "altered"])
def test_a_damaged_artifact_is_named_and_never_returned(store, folder, damage, objects_of, overwrite):
    artifact = commit(store, folder)
    name = next(name for name in objects_of(store) if name.endswith("weights.safetensors"))
    size = next(entry.size for entry in store.manifest(artifact).files if entry.path.endswith("weights.safetensors"))
    overwrite(store, name, {"missing": None, "truncated": b"short", "altered": b"x" * size}[damage])
    with pytest.raises(StoreError, match=r"(?s)weights\.safetensors.*delete .*manifest\.json and run again"):
        store.fetch(artifact)


@pytest.mark.integration
def test_altered_bytes_of_the_right_size_are_found_when_downloading(s3, tmp_path, folder, objects_of, overwrite):
    store = open_store(*s3, tmp_path / "cache")
    artifact = commit(store, folder)
    name = next(name for name in objects_of(store) if name.endswith(".txt"))
    overwrite(store, name, b"x" * len("odd name"))
    with pytest.raises(StoreError, match="not what the manifest says"):
        store.fetch(artifact)
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda text: text[:-20], "broken: : Invalid JSON"),
        (lambda text: text.replace('"path": "empty"', '"path": "../../../../etc/x"'), "not a plain relative path"),
        (lambda text: text.replace(DIGEST, "1" * 64), "belongs to slice/1111"),
        (lambda text: json.dumps(json.loads(text) | {"attempt": "../x"}), "attempt"),
    ],
)
def test_a_damaged_manifest_is_refused(store, folder, overwrite, objects_of, change, complaint):
    artifact = commit(store, folder)
    manifest = store.manifest(artifact).model_dump_json(indent=1)
    overwrite(store, f"slice/{DIGEST}/manifest.json", change(manifest).encode())
    with pytest.raises(StoreError, match=complaint):
        store.fetch(artifact)
    with pytest.raises(StoreError, match=r"[Dd]elete it and run again"):
        store.find("slice", DIGEST)


@pytest.mark.integration
def test_two_processes_that_fetch_at_once_share_one_folder(s3, tmp_path, folder):
    store = open_store(*s3, tmp_path / "cache")
    artifact = commit(store, folder)
    with ThreadPoolExecutor(4) as pool:
        fetched = set(pool.map(store.fetch, [artifact] * 4))
    assert len(fetched) == 1
    assert contents(fetched.pop()) == contents(folder)
    assert not list((tmp_path / "cache").rglob("*.partial"))


@pytest.mark.integration
def test_a_fetched_artifact_is_not_downloaded_again(s3, tmp_path, folder):
    store = open_store(*s3, tmp_path / "cache")
    artifact = commit(store, folder)
    path = store.fetch(artifact)
    before = {p: p.stat().st_mtime_ns for p in path.rglob("*")}
    time.sleep(0.01)
    assert store.fetch(artifact) == path
    assert {p: p.stat().st_mtime_ns for p in path.rglob("*")} == before
    (path / "empty").write_text("somebody wrote into the cache")
    with pytest.raises(StoreError, match=r"(?s)bytes instead of 0.*delete .*cache"):
        store.fetch(artifact)


def test_an_artifact_of_another_store_is_refused(store, folder, tmp_path):
    elsewhere = open_store(StoreSettings(), (tmp_path / "elsewhere").as_uri(), tmp_path / "cache2")
    with pytest.raises(StoreError, match="is not in the store"):
        store.fetch(commit(elsewhere, folder))


@pytest.mark.parametrize("fill", ["nothing", "link to nowhere", "link to a folder", "bad name"])
def test_a_folder_that_cannot_be_stored_is_refused(store, tmp_path, fill, objects_of):
    folder = tmp_path / "bad"
    folder.mkdir()
    if fill == "link to nowhere":
        (folder / "link").symlink_to("nowhere")
    elif fill == "link to a folder":
        (folder / "link").symlink_to(tmp_path)
    elif fill == "bad name":
        (folder / "new\nline").touch()
    with pytest.raises(StoreError):
        commit(store, folder)
    assert objects_of(store) == set()


def test_links_to_files_are_stored_as_files(store, tmp_path, folder):
    (folder / "link").symlink_to(folder / "sub" / "ü %41 +&.txt")
    assert (store.fetch(commit(store, folder)) / "link").read_text() == "odd name"


def test_many_processes_committing_one_digest_agree(tmp_path, folder):
    uri = (tmp_path / "shared").as_uri()
    script = f"""
import sys
from pathlib import Path
from nemotron_rl.config.run import StoreSettings
from nemotron_rl.store import open_store
folder = Path(sys.argv[1])
store = open_store(StoreSettings(), {uri!r}, Path("unused"))
print(store.fetch(store.commit(folder, kind="slice", digest={DIGEST!r}, inputs=[], settings={{}}, facts={{}})))
"""
    command = [sys.executable, "-c", script, str(folder)]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    answers = {writer.communicate(timeout=60)[0].strip() for writer in writers}
    assert len(answers) == 1
    assert contents(Path(answers.pop())) == contents(folder)
    assert len(list((tmp_path / "shared" / "slice" / DIGEST).rglob("*.txt"))) == 1


@pytest.mark.parametrize("uri", ["http://x/y", "/plain/path", "s3://", "file://", "file://host/x", ""])
def test_an_address_that_is_not_a_store_is_refused(uri, tmp_path):
    with pytest.raises(InputError, match="not the address of a store"):
        open_store(StoreSettings(), uri, tmp_path)


def test_an_unwritable_folder_is_the_users_mistake(tmp_path, folder):
    (tmp_path / "file").touch()
    for place in (tmp_path / "file" / "store", Path("/proc/store")):
        store = open_store(StoreSettings(), place.as_uri(), tmp_path / "cache")
        with pytest.raises(InputError, match="cannot write"):
            store.check_writable()
    with pytest.raises(InputError, match="cannot write"):
        commit(store, folder)


@pytest.mark.integration
def test_a_missing_bucket_is_the_users_mistake(s3, tmp_path):
    settings, _ = s3
    with pytest.raises(InputError, match=r"(?s)no-such-bucket.*store\.endpoint"):
        open_store(settings, "s3://no-such-bucket/x", tmp_path).check_writable()


def test_opening_a_store_creates_nothing(tmp_path):
    store = open_store(StoreSettings(), (tmp_path / "none").as_uri(), tmp_path / "cache")
    assert store.find("slice", DIGEST) is None
    assert list(tmp_path.iterdir()) == []
