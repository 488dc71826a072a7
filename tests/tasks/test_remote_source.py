"""Runs that start from a checkpoint on a Hub or in a bucket: what is fetched, and when it is not fetched again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from huggingface_hub import constants

from nemotron_rl.checkpoint.ranged import retry
from nemotron_rl.checkpoint.ranged.source import SourceUnavailable
from nemotron_rl.errors import CheckpointError
from tasks.download import download
from tasks.slice import slice_layers
from tasks.stage import run_store
from tasks.timeline import read_timeline
from tests.checkpoint.conftest import bucket, s3
from tests.checkpoint.hub import COMMIT, Answer, Hub, serving
from tests.oracles.checkpoint_files import read_checkpoint, sliced

__all__ = ["bucket", "s3"]

LAYERS = [0, 1, 3, 4]
AT_HUB = {"source__uri": "hf://org/name@v1", "slice__layers": LAYERS}


@pytest.fixture
def hub(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving(tiny) as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.url)  # which the client reads once, when it is imported
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", running.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        yield running


def stages_of(settings) -> list[tuple[str, bool]]:
    return [(entry.stage.name, entry.stage.cached) for entry in read_timeline(settings.run_dir)]


def test_a_run_fetches_only_what_its_slice_needs(hub: Hub, tiny: Path, make_settings) -> None:
    settings = make_settings(**AT_HUB)
    source = download.fn(settings)
    assert (source.folder, source.uri, hub.fetched) == (None, f"hf://org/name@{COMMIT}", [])
    artifact = slice_layers.fn(source, settings)
    folder = run_store(settings).fetch(artifact)
    assert read_checkpoint(folder) == sliced(read_checkpoint(tiny), LAYERS, keep_mtp=True)
    assert hub.bytes_sent < 0.8 * sum(file.stat().st_size for file in tiny.iterdir())
    assert not (settings.output_dir / "cache" / "sources").exists()
    assert not (settings.run_dir / "slice" / ".out.partial").exists()
    assert '"hf://org/name@v1"' in (folder / "nemotron_rl_slice.json").read_text()


def test_a_second_run_fetches_nothing(hub: Hub, make_settings) -> None:
    made = []
    for run_id in ("one", "two"):
        settings = make_settings(run_id, **AT_HUB)
        source = download.fn(settings)
        made.append((source, slice_layers.fn(source, settings)))
        assert stages_of(settings) == [("download", run_id == "two"), ("slice", run_id == "two")]
        sent, hub.fetched = hub.fetched, []
        assert bool(sent) == (run_id == "one")
    assert made[0] == made[1]


def test_a_slice_that_is_tried_again_goes_on_where_it_was(
    hub: Hub, tiny: Path, make_settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "_BACKOFF", lambda state: 0.01)
    settings = make_settings(**AT_HUB)
    source = download.fn(settings)
    last = max(file.name for file in tiny.glob("*.safetensors"))

    def away(file: str, answer: Answer) -> None:
        if file == last and not answer.headers.get("Content-Range", "").startswith(("bytes 0-", "bytes 8-")):
            answer.status, answer.body = 503, b""

    hub.always = away
    with pytest.raises(SourceUnavailable, match=last):
        slice_layers.fn(source, settings)
    first = {(part.file, part.start) for part in hub.fetched if part.start > 8}
    hub.always, hub.fetched = None, []
    folder = run_store(settings).fetch(slice_layers.fn(source, settings))
    assert read_checkpoint(folder) == sliced(read_checkpoint(tiny), LAYERS, keep_mtp=True)
    assert first and not first & {(part.file, part.start) for part in hub.fetched}


def test_a_bucket_that_changes_between_two_stages_is_refused(bucket: str, tiny: Path, make_settings) -> None:
    uri = "s3://models/nemotron/tiny"
    at_bucket = {"source__uri": uri, "store__endpoint": bucket, "store__region": "us-east-1"}
    settings = make_settings(slice__layers=LAYERS, **at_bucket)
    source = download.fn(settings)
    assert (source.folder, source.uri) == (None, uri)
    folder = run_store(settings).fetch(slice_layers.fn(source, settings))
    assert read_checkpoint(folder) == sliced(read_checkpoint(tiny), LAYERS, keep_mtp=True)
    client = boto3.client("s3", endpoint_url=bucket, region_name="us-east-1")
    client.put_object(Bucket="models", Key="nemotron/tiny/README.md", Body=b"new")
    other = make_settings("two", slice__layers=[0, 1, 2, 3], **at_bucket)
    with pytest.raises(CheckpointError, match="has changed since the run began"):
        slice_layers.fn(source, other)
    assert download.fn(other).artifact != source.artifact
