from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import boto3
import pytest
from obstore.store import S3Store

from nemotron_rl.checkpoint.fetch_s3 import _fetch as _fetch_object
from nemotron_rl.checkpoint.layout import CheckpointFolder
from nemotron_rl.checkpoint.progress import Meter
from nemotron_rl.checkpoint.source import open_source, source_name, validate_uri
from nemotron_rl.errors import CheckpointError, SettingsError
from tests.checkpoint.hub import COMMIT, serving
from tests.oracles.checkpoint_files import read_checkpoint


def test_a_folder_is_used_where_it_is(tiny: Path, tmp_path: Path) -> None:
    assert open_source(str(tiny), tmp_path) == tiny
    assert open_source(tiny.as_uri(), tmp_path) == tiny
    assert list(tmp_path.iterdir()) == []


def test_a_synthetic_checkpoint_is_made_once_per_seed(tiny: Path, tmp_path: Path) -> None:
    calls: list[int] = []
    folder = open_source("synth://tiny", tmp_path, progress=lambda done, total: calls.append(done))
    assert read_checkpoint(folder) == read_checkpoint(tiny)
    assert calls
    calls.clear()
    assert open_source("synth://tiny", tmp_path, progress=lambda done, total: calls.append(done)) == folder
    assert not calls
    assert open_source("synth://tiny", tmp_path, seed=1) != folder


@pytest.mark.parametrize(
    ("uri", "error", "says"),
    [
        (
            "/nowhere/at/all",
            CheckpointError,
            ["/nowhere/at/all", "does not exist", "synth://PRESET", "s3://bucket/prefix"],
        ),
        ("file:///nowhere", CheckpointError, ["/nowhere", "does not exist"]),
        ("file://host/x", CheckpointError, ["host"]),
        ("", CheckpointError, ["empty"]),
        ("synt://tiny", CheckpointError, ["unknown scheme 'synt'", "did you mean 'synth'"]),
        ("gs://bucket/x", CheckpointError, ["unknown scheme 'gs'"]),
        ("synth://tinny", SettingsError, ["Did you mean 'tiny'"]),
        ("hf://name", CheckpointError, ["hf://org/name"]),
        ("hf://org/name@", CheckpointError, ["hf://org/name"]),
        ("hf://org/a/b", CheckpointError, ["hf://org/name"]),
        ("s3://bucket", CheckpointError, ["bucket and a prefix"]),
    ],
)
def test_an_address_that_cannot_work_is_refused_at_once(
    tmp_path: Path, uri: str, error: type[Exception], says: list[str]
) -> None:
    with pytest.raises(error) as refused:
        validate_uri(uri)
    assert all(part in str(refused.value) for part in says)
    with pytest.raises(error):
        open_source(uri, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("uri", ["hf://nvidia/NVIDIA-Nemotron-3-Nano-4B-BF16@main", "hf://a/b@refs/pr/1", "s3://b/c/d"])
def test_remote_addresses_are_valid_without_a_network(uri: str) -> None:
    validate_uri(uri)
    assert source_name(uri) == uri


def test_provenance_gets_a_folders_name_only(tmp_path: Path) -> None:
    assert source_name(str(tmp_path / "model")) == source_name((tmp_path / "model").as_uri()) == "model"


@pytest.mark.slow
def test_sources_import_neither_torch_nor_the_remote_clients() -> None:
    code = (
        "import sys, nemotron_rl.checkpoint.source, nemotron_rl.checkpoint.slicing, nemotron_rl.checkpoint.tokenizer;"
        "sys.exit(str({'torch', 'transformers', 'safetensors', 'huggingface_hub', 'obstore'} & set(sys.modules) or ''))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).stderr.strip() == b""


_FETCH = """
import json, sys
from pathlib import Path
from nemotron_rl.checkpoint.progress import Meter
from nemotron_rl.checkpoint.source import open_source
from nemotron_rl.errors import CheckpointError
out = []
for uri in sys.argv[2:]:
    seen = []
    try:
        folder = str(open_source(uri, Path(sys.argv[1]), progress=lambda *state: seen.append(state)))
    except CheckpointError as error:
        folder = str(error)
    out.append([folder, seen[-1:]])
print(json.dumps(out))
"""


def _fetch(endpoint: str, cache: Path, *uris: str) -> tuple[list[tuple[str, list[list[int]]]], str]:
    """What open_source says of each address, and stderr; in a process of its own: the client reads HF_ENDPOINT once."""
    command = [sys.executable, "-c", _FETCH, str(cache), *uris]
    done = subprocess.run(
        command, env=os.environ | {"HF_ENDPOINT": endpoint}, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout), done.stderr


@pytest.mark.slow
def test_a_hub_repository_is_fetched_once_and_what_is_not_there_is_named(tiny: Path, tmp_path: Path) -> None:
    uri = "hf://org/name@v1"
    with serving(tiny) as hub:
        answers, noise = _fetch(hub.url, tmp_path, uri, uri, "hf://org/none", "hf://org/name@v9")
    (first, progress), (second, _), (no_repository, _), (no_revision, _) = answers
    assert Path(first).name == COMMIT
    assert read_checkpoint(Path(first)) == read_checkpoint(tiny)
    assert CheckpointFolder.open(Path(first)).pattern.main == "MEM*EM-EMEM*EM-E"
    size = sum(file.stat().st_size for file in tiny.iterdir())
    assert progress == [[size, size]]
    assert second == first
    fetched = [request for request in hub.requests if request.startswith("GET") and "/resolve/" in request]
    assert len(fetched) == len(set(fetched)) == len(list(tiny.iterdir()))
    assert no_repository.startswith("hf://org/none@main: there is no such repository")
    assert no_revision == "hf://org/name@v9: the repository has no revision 'v9'"
    assert noise == ""


@pytest.mark.slow
def test_a_hub_that_cannot_be_reached_is_an_error(tmp_path: Path) -> None:
    ((message, _),), _ = _fetch("http://127.0.0.1:9", tmp_path, "hf://org/name")
    assert message.startswith("hf://org/name@main could not be fetched from http")


def test_an_s3_prefix_is_fetched_once_and_again_when_it_changes(bucket: str, tiny: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    uri = "s3://models/nemotron/tiny/"
    folder = open_source(uri, tmp_path, progress=lambda *state: seen.append(state), endpoint=bucket, region="us-east-1")
    assert read_checkpoint(folder) == read_checkpoint(tiny)
    assert {file.name for file in folder.iterdir()} == {file.name for file in tiny.iterdir()}
    size = sum(file.stat().st_size for file in tiny.iterdir())
    assert seen[-1] == (size, size)
    seen.clear()
    assert open_source(uri, tmp_path, progress=lambda *state: seen.append(state), endpoint=bucket) == folder
    assert not seen
    client = boto3.client("s3", endpoint_url=bucket, region_name="us-east-1")
    client.put_object(Bucket="models", Key="nemotron/tiny/LICENSE", Body=b"new")
    assert open_source(uri, tmp_path, endpoint=bucket) != folder


def test_an_s3_object_that_changed_after_the_listing_is_refused(bucket: str, tmp_path: Path) -> None:
    store = S3Store("models", prefix="nemotron/tiny", endpoint=bucket, client_options={"allow_http": True})
    listed = {"e_tag": '"of an earlier upload"', "size": 1}
    with pytest.raises(CheckpointError, match=r"config\.json changed while"):
        _fetch_object(store, "config.json", listed, tmp_path / "config.json", Meter(1, None))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("uri", ["s3://models/nothing", "s3://no-such-bucket/x"])
def test_what_s3_does_not_have_is_named(bucket: str, tmp_path: Path, uri: str) -> None:
    with pytest.raises(CheckpointError, match=uri):
        open_source(uri, tmp_path, endpoint=bucket)
    assert list(tmp_path.iterdir()) == []
