from __future__ import annotations

import json
from pathlib import Path

import boto3
import pytest

from nemotron_rl.checkpoint.ranged import retry
from nemotron_rl.checkpoint.ranged.retry import read_bytes
from nemotron_rl.checkpoint.ranged.s3 import S3Source
from nemotron_rl.checkpoint.ranged.source import SourceChanged
from nemotron_rl.checkpoint.slicing import slice_checkpoint
from nemotron_rl.checkpoint.source import open_ranges
from nemotron_rl.errors import CheckpointError
from tests.checkpoint.proxy import cutting
from tests.oracles.checkpoint_files import read_checkpoint, sliced


def test_a_slice_of_a_bucket_has_the_bytes_of_its_source(bucket: str, tiny: Path, tmp_path: Path) -> None:
    uri = "s3://models/nemotron/tiny"
    with open_ranges(uri, tmp_path / "cache", endpoint=bucket, region="us-east-1") as source:
        slice_checkpoint(source, tmp_path / "dst", [0, 3], "drop", piece_bytes=200_000)
    assert read_checkpoint(tmp_path / "dst") == sliced(read_checkpoint(tiny), [0, 3], keep_mtp=False)
    account = json.loads((tmp_path / "dst" / "nemotron_rl_slice.json").read_text())
    assert account["source"] == uri and "revision" not in account
    assert [path.name for path in tmp_path.iterdir()] == ["dst"]


def test_a_service_that_hangs_up_in_the_middle_of_objects_is_survived(
    bucket: str, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "_BACKOFF", lambda state: 0.01)
    with cutting(bucket) as proxy:
        source = S3Source("models", "nemotron/tiny", proxy.url, "us-east-1")
        proxy.cuts = [20_000, 70_000, 10, 50_000] * 3
        slice_checkpoint(source, tmp_path / "dst", [0, 3], "drop", piece_bytes=200_000)
        source.close()
        assert proxy.dropped >= 3
    assert read_checkpoint(tmp_path / "dst") == sliced(read_checkpoint(tiny), [0, 3], keep_mtp=False)
    assert [path.name for path in tmp_path.iterdir()] == ["dst"]


@pytest.mark.parametrize("gone", [False, True])
def test_an_object_that_changes_is_named(bucket: str, gone: bool) -> None:
    source = S3Source("models", "nemotron/tiny", bucket, "us-east-1")
    assert read_bytes(source, "config.json", 2, 9)
    client = boto3.client("s3", endpoint_url=bucket, region_name="us-east-1")
    if gone:
        client.delete_object(Bucket="models", Key="nemotron/tiny/config.json")
    else:
        client.put_object(Bucket="models", Key="nemotron/tiny/config.json", Body=b"x" * 100)
    with pytest.raises(SourceChanged, match=r"config\.json changed"):
        read_bytes(source, "config.json", 2, 9)
    source.close()


@pytest.mark.parametrize(("bucket_name", "prefix"), [("models", "nothing"), ("no-such-bucket", "x")])
def test_what_is_not_there_is_named(bucket: str, bucket_name: str, prefix: str) -> None:
    with pytest.raises(CheckpointError, match=f"s3://{bucket_name}/{prefix}"):
        S3Source(bucket_name, prefix, bucket, "us-east-1")
