"""Stores to test against: a folder, and a bucket of a real S3 server process on a loopback port."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest

from nemotron_rl.config.run import StoreSettings
from nemotron_rl.store import ArtifactStore, open_store


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert server.stderr is not None
    try:
        for line in server.stderr:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                yield found[0]
                break
        else:
            raise RuntimeError("the S3 server ended before it listened")
    finally:
        server.terminate()
        server.communicate(timeout=20)


@pytest.fixture
def s3(s3_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[StoreSettings, str]]:
    """Settings and address of an empty bucket, with credentials in the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    bucket = f"b-{abs(hash(tmp_path))}"
    client = boto3.client("s3", endpoint_url=s3_endpoint, region_name="us-east-1")
    client.create_bucket(Bucket=bucket)
    yield StoreSettings(endpoint=s3_endpoint), f"s3://{bucket}/some/prefix"


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.integration)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    if request.param == "file":
        return open_store(StoreSettings(), (tmp_path / "a store").as_uri(), tmp_path / "cache")
    settings, uri = request.getfixturevalue("s3")
    return open_store(settings, uri, tmp_path / "cache")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a nested, an empty, an oddly named and a 9 MiB file (two parts of a multipart upload)."""
    folder = tmp_path / "result"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "weights.safetensors").write_bytes(bytes(range(256)) * (9 * 4096))
    (folder / "empty").touch()
    (folder / "sub" / "ü %41 +&.txt").write_text("odd name")
    return folder


@pytest.fixture
def objects_of() -> Callable[[ArtifactStore], set[str]]:
    """Names of all objects in a store, seen past the store's own code."""

    def names(store: ArtifactStore) -> set[str]:
        backend, base = store._objects._backend, store._objects._base
        return {meta["path"].removeprefix(f"{base}/") for batch in backend.list(base) for meta in batch}

    return names


@pytest.fixture
def overwrite() -> Callable[[ArtifactStore, str, bytes | None], None]:
    """Damage an object behind the store's back; None deletes it."""

    def damage(store: ArtifactStore, name: str, data: bytes | None) -> None:
        backend, key = store._objects._backend, f"{store._objects._base}/{name}"
        backend.delete(key) if data is None else backend.put(key, data)

    return damage
