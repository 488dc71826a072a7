"""A local S3 endpoint: moto's server."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3

from tests.integration.services.daemon import daemon, listening
from tests.ports import free_ports

_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


@dataclass(frozen=True)
class S3:
    """An endpoint with one empty bucket."""

    endpoint: str
    bucket: str

    @property
    def environ(self) -> dict[str, str]:
        """The AWS_* variables that a client of it needs."""
        return dict(_CREDENTIALS)

    def client(self) -> Any:
        """A boto3 client."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=_CREDENTIALS["AWS_DEFAULT_REGION"],
            aws_access_key_id=_CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=_CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )

    def read(self, key: str) -> bytes:
        """One object's bytes."""
        content: bytes = self.client().get_object(Bucket=self.bucket, Key=key)["Body"].read()
        return content

    def keys(self, prefix: str = "") -> set[str]:
        """All object keys under a prefix."""
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return {found["Key"] for page in pages for found in page.get("Contents", [])}


@contextlib.contextmanager
def s3_server(bucket: str = "artifacts") -> Iterator[S3]:
    """An S3 endpoint on a free loopback port, with one empty bucket; gone when the block ends."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="s3-") as folder:
        argv = (sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port))
        log = Path(folder) / "moto.log"
        with daemon(argv, environ=os.environ, log=log, ready=lambda: listening(port), ports=[port]):
            s3 = S3(f"http://127.0.0.1:{port}", bucket)
            s3.client().create_bucket(Bucket=bucket)
            yield s3
