"""Slices straight from a Hub: how much is fetched, and what happens when the server misbehaves."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path

import httpx
import pytest

from nemotron_rl.checkpoint.layout import read_checkpoint as read_source
from nemotron_rl.checkpoint.ranged import retry
from nemotron_rl.checkpoint.ranged.hub import HubSource
from nemotron_rl.checkpoint.ranged.source import SourceChanged, SourceUnavailable
from nemotron_rl.checkpoint.slice_plan import plan_slice
from nemotron_rl.checkpoint.slicing import PROVENANCE_FILE, slice_checkpoint
from nemotron_rl.errors import CheckpointError
from tests.checkpoint.hub import COMMIT, Answer, Fault, Hub, serving
from tests.oracles.checkpoint_files import read_checkpoint, sliced

PIECE = 100_000
LAYERS = [0, 1, 3, 4]


@pytest.fixture
def hub(tiny: Path) -> Iterator[Hub]:
    with serving(tiny) as running:
        yield running


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_BACKOFF", lambda state: 0.01)


def source_of(hub: Hub) -> HubSource:
    return HubSource("org/name", "v1", endpoint=hub.url, token="hf_secret")


def slice_from(hub: Hub, dst: Path) -> None:
    source = source_of(hub)
    try:
        slice_checkpoint(source, dst, LAYERS, piece_bytes=PIECE)
    finally:
        source.close()


def on(name: str, change: Callable[[Answer], None]) -> Fault:
    """A fault in ranges of one file, its header excepted."""

    def fault(file: str, answer: Answer) -> None:
        header = answer.headers.get("Content-Range", "").startswith(("bytes 0-", "bytes 8-"))
        if file == name and answer.status == 206 and not header:
            change(answer)

    return fault


def assert_right(dst: Path, tiny: Path) -> None:
    assert read_checkpoint(dst) == sliced(read_checkpoint(tiny), LAYERS, keep_mtp=True)
    assert [path.name for path in dst.parent.iterdir()] == [dst.name]


def test_a_slice_fetches_little_more_than_it_needs(hub: Hub, tiny: Path, tmp_path: Path) -> None:
    slice_from(hub, tmp_path / "dst")
    assert_right(tmp_path / "dst", tiny)
    plan = plan_slice(source_of(hub), LAYERS, source_name="x")
    index_and_headers = sum(
        (tiny / name).stat().st_size for name in ("config.json", "model.safetensors.index.json")
    ) + sum(8 + int.from_bytes(file.read_bytes()[:8], "little") for file in tiny.glob("*.safetensors"))
    once = hub.fetched[: next(i for i, part in enumerate(hub.fetched) if i and part == hub.fetched[0])]
    assert sum(part.size for part in once) <= 1.02 * plan.fetch.needed + index_and_headers
    everything = sum(file.stat().st_size for file in tiny.iterdir())
    assert plan.fetch.needed < 0.75 * everything


def test_a_slice_of_a_hub_equals_the_slice_of_a_folder(hub: Hub, tiny: Path, tmp_path: Path) -> None:
    slice_from(hub, tmp_path / "remote")
    slice_checkpoint(tiny, tmp_path / "local", LAYERS)
    remote, local = ({f.name: f.read_bytes() for f in (tmp_path / n).iterdir()} for n in ("remote", "local"))
    account = json.loads(remote.pop(PROVENANCE_FILE))
    local.pop(PROVENANCE_FILE)
    assert remote == local
    assert (account["source"], account["revision"]) == ("hf://org/name@v1", COMMIT)


def test_a_remote_checkpoint_is_checked_by_its_headers(hub: Hub, tiny: Path) -> None:
    config, tensors = read_source(source_of(hub))
    assert config == json.loads((tiny / "config.json").read_text())
    assert {name: (t.dtype, t.shape) for name, t in tensors.items()} == {
        name: (dtype, shape) for name, (dtype, shape, _) in read_checkpoint(tiny).items()
    }
    assert hub.bytes_sent < 0.1 * sum(file.stat().st_size for file in tiny.iterdir())


def test_the_token_is_sent_to_the_hub_and_to_nobody_else(tiny: Path, tmp_path: Path) -> None:
    with serving(tiny) as cdn, serving(tiny, cdn) as hub:
        slice_from(hub, tmp_path / "dst")
    assert_right(tmp_path / "dst", tiny)
    assert set(hub.authorizations) == {"Bearer hf_secret"}
    assert cdn.fetched and set(cdn.authorizations) == {None}
    asked = [request for request in hub.requests if request.endswith(".safetensors")]
    assert len(asked) < len(cdn.fetched), "the address is remembered"


def test_an_expired_address_is_asked_for_again(tiny: Path, tmp_path: Path) -> None:
    with serving(tiny) as cdn, serving(tiny, cdn) as hub:
        source = source_of(hub)
        shard = min(tiny.glob("*.safetensors"))
        assert retry.read_bytes(source, shard.name, 0, 8)
        cdn.faults = [expire, expire]
        assert retry.read_bytes(source, shard.name, 8, 20) == shard.read_bytes()[8:20]
        source.close()


def expire(_: str, answer: Answer) -> None:
    answer.status, answer.body = 403, b""


def drop(_: str, answer: Answer) -> None:
    answer.cut = len(answer.body) // 2


def fail(_: str, answer: Answer) -> None:
    answer.status, answer.body = 503, b""


def throttle(_: str, answer: Answer) -> None:
    answer.status, answer.body, answer.headers = 429, b"", {"Retry-After": "1"}


def throttle_briefly(_: str, answer: Answer) -> None:
    answer.status, answer.body, answer.headers = 429, b"", {"Retry-After": "0"}


@pytest.mark.parametrize("fault", [drop, fail, throttle_briefly])
def test_a_passing_fault_is_survived(hub: Hub, tiny: Path, tmp_path: Path, fault: Fault) -> None:
    hub.faults = [fault, lambda *_: None] * 40
    slice_from(hub, tmp_path / "dst")
    assert_right(tmp_path / "dst", tiny)


def test_a_dropped_range_continues_where_it_broke_off(hub: Hub, tiny: Path) -> None:
    source, shard = source_of(hub), min(tiny.glob("*.safetensors"))
    hub.faults = [drop, drop]
    assert retry.read_bytes(source, shard.name, 1000, 9000) == shard.read_bytes()[1000:9000]
    assert [(part.start, part.size) for part in hub.fetched] == [(1000, 4000), (5000, 2000), (7000, 2000)]
    source.close()


def test_a_server_that_asks_for_patience_gets_it(hub: Hub, tiny: Path) -> None:
    source = source_of(hub)
    hub.faults = [throttle]
    began = time.monotonic()
    assert retry.read_bytes(source, "config.json", 0, source.files["config.json"].size)
    assert time.monotonic() - began >= 1
    source.close()


@pytest.mark.parametrize(
    ("header", "wait"),
    [("7", 7), ("0", 0), ("99999", 300), (None, None), ("soon", None), ("-3", None), (formatdate(0, usegmt=True), 0)],
)
def test_retry_after_is_seconds_or_a_date(header: str | None, wait: float | None) -> None:
    assert retry.seconds_asked_for(header) == wait


def test_a_date_to_come_is_waited_for() -> None:
    wait = retry.seconds_asked_for(formatdate(time.time() + 100, usegmt=True))
    assert wait is not None and 90 <= wait <= 100


def test_a_source_that_stays_away_is_an_error_and_the_next_try_continues(hub: Hub, tiny: Path, tmp_path: Path) -> None:
    name = max(file.name for file in tiny.glob("*.safetensors"))
    hub.always = on(name, lambda answer: fail("", answer))
    with pytest.raises(SourceUnavailable, match=rf"{name} could not be read: HTTP 503, 8 times .* to continue"):
        slice_from(hub, tmp_path / "dst")
    assert [path.name for path in tmp_path.iterdir()] == [".dst.partial"]
    hub.always = None
    before = {(part.file, part.start) for part in hub.fetched if part.start > 8}
    hub.fetched.clear()
    slice_from(hub, tmp_path / "dst")
    assert_right(tmp_path / "dst", tiny)
    assert before and not before & {(part.file, part.start) for part in hub.fetched}


def ignore_range(answer: Answer) -> None:
    answer.status = 200
    del answer.headers["Content-Range"]


def other_etag(answer: Answer) -> None:
    answer.headers["ETag"] = '"another"'


def other_range(answer: Answer) -> None:
    answer.headers["Content-Range"] = "bytes 0-9/10"


def compressed(answer: Answer) -> None:
    answer.headers["Content-Encoding"] = "gzip"


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (ignore_range, "answered a range with the whole file"),
        (other_etag, "ETag was .* and is another"),
        (other_range, "asked for bytes .*, got 'bytes 0-9/10'"),
        (compressed, "compressed"),
    ],
)
def test_a_wrong_answer_is_an_error_that_names_the_file_and_leaves_nothing(
    hub: Hub, tiny: Path, tmp_path: Path, fault: Callable[[Answer], None], says: str
) -> None:
    name = min(file.name for file in tiny.glob("*.safetensors"))
    hub.always = on(name, fault)
    with pytest.raises(CheckpointError, match=f"{name}.*{says}"):
        slice_from(hub, tmp_path / "dst")
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_sends_the_whole_file_now_and_then_is_asked_again(hub: Hub, tiny: Path, tmp_path: Path) -> None:
    seen: list[str] = []

    def whole_every_third(file: str, answer: Answer) -> None:
        seen.append(file)
        if len(seen) % 3 == 0:
            ignore_range(answer)
            answer.body = (tiny / file).read_bytes()

    hub.always = lambda file, answer: on(file, lambda answer: whole_every_third(file, answer))(file, answer)
    slice_from(hub, tmp_path / "dst")
    assert len(seen) >= 6
    assert_right(tmp_path / "dst", tiny)


def test_a_server_without_ranges_is_refused_at_once(hub: Hub, tmp_path: Path) -> None:
    def without_ranges(file: str, answer: Answer) -> None:
        if answer.status == 206:
            ignore_range(answer)

    hub.always = without_ranges
    with pytest.raises(CheckpointError, match=r"model-.*: the server answered a range with the whole file"):
        slice_from(hub, tmp_path / "dst")
    assert len([part for part in hub.fetched if part.file.endswith(".safetensors")]) <= 3, "none was asked again"
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_replaced_midway_is_named_and_nothing_is_mixed(
    tiny: Path, copy_of: Callable[[Path], Path], tmp_path: Path
) -> None:
    source = copy_of(tiny)
    shard = min(source.glob("*.safetensors"))
    with serving(source) as hub:
        hub.faults = [lambda *_: None] * 12 + [lambda *_: os.utime(_replace(shard), ns=(1, 1))]
        with pytest.raises(SourceChanged, match=rf"{shard.name} changed while it was read: its ETag was"):
            slice_from(hub, tmp_path / "out" / "dst")
        assert len(hub.fetched) > 12
        assert not (tmp_path / "out").exists()
        slice_from(hub, tmp_path / "out" / "dst")
    assert_right(tmp_path / "out" / "dst", source)


def _replace(file: Path) -> Path:
    """Other values of the same size in its place."""
    data = bytearray(file.read_bytes())
    data[-1000:] = bytes(value ^ 1 for value in data[-1000:])
    new = file.with_name("new")
    new.write_bytes(data)
    return new.rename(file)


def test_a_store_behind_the_hub_that_changes_a_file_midway_is_caught(tiny: Path, tmp_path: Path) -> None:
    name = min(file.name for file in tiny.glob("*.safetensors"))
    with serving(tiny) as cdn, serving(tiny, cdn) as hub:
        cdn.always = on(name, other_etag)
        with pytest.raises(SourceChanged, match=name):
            slice_from(hub, tmp_path / "dst")
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_changed_between_two_tries_is_fetched_anew(
    tiny: Path, copy_of: Callable[[Path], Path], tmp_path: Path
) -> None:
    source, dst = copy_of(tiny), tmp_path / "out" / "dst"
    first, *_, last = sorted(source.glob("*.safetensors"))
    with serving(source) as hub:
        hub.always = on(last.name, lambda answer: fail("", answer))
        with pytest.raises(SourceUnavailable):
            slice_from(hub, dst)
        hub.always = None
        first.write_bytes(first.read_bytes()[:-1] + b"!")
        slice_from(hub, dst)
    assert_right(dst, source)


@pytest.mark.parametrize(("status", "says"), [(404, "HTTP 404"), (401, "HF_TOKEN")])
def test_a_file_that_may_not_be_read_is_named(hub: Hub, status: int, says: str) -> None:
    def refuse(_: str, answer: Answer) -> None:
        answer.status, answer.body = status, b""

    source = source_of(hub)
    hub.faults = [refuse]
    with pytest.raises(CheckpointError, match=f"config.json.*{says}"):
        read_source(source)
    source.close()
    source.close()
    assert isinstance(source._client, httpx.Client) and source._client.is_closed
