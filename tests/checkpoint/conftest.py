"""A checkpoint that may be broken, and a bucket with one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[Path], Path]:
    """A copy that the test may break."""
    return lambda source: Path(shutil.copytree(source, tmp_path / "copy"))


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    yield f"http://127.0.0.1:{port}"
    server.stop()


@pytest.fixture
def bucket(s3: str, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(key, "testing")
    client = boto3.client("s3", endpoint_url=s3, region_name="us-east-1")
    client.create_bucket(Bucket="models")
    for file in tiny.iterdir():
        client.upload_file(str(file), "models", f"nemotron/tiny/{file.name}")
    client.put_object(Bucket="models", Key="nemotron/tiny/deeper/file", Body=b"not part of it")
    return s3
