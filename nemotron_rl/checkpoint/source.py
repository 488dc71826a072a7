"""Any address of a checkpoint (local, `synth://`, `hf://`, `s3://`) becomes a folder, or something to read parts of.

`open_source` fetches a remote checkpoint whole; `open_ranges` fetches nothing until a part is asked for.

What a fetch leaves in the cache is complete, and named by what it was made from, so it is never fetched twice.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote, urlsplit

from nemotron_rl.checkpoint.geometries import preset_config
from nemotron_rl.checkpoint.initial import RECIPE
from nemotron_rl.checkpoint.new_folder import make_once
from nemotron_rl.checkpoint.progress import Progress
from nemotron_rl.checkpoint.ranged.folder import FolderSource
from nemotron_rl.checkpoint.ranged.source import ByteSource
from nemotron_rl.checkpoint.synth import synthesize
from nemotron_rl.config.nearest import nearest
from nemotron_rl.errors import CheckpointError
from nemotron_rl.paths import check_path

ACCEPTED = "a folder, file:///path, synth://PRESET, hf://org/name@revision or s3://bucket/prefix"
_HUB = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+?)(@(?P<revision>[\w./-]+))?")
_SCHEMES = ("file", "synth", "hf", "s3")


@dataclass(frozen=True)
class _Address:
    scheme: str
    rest: str
    """What follows `scheme://`; for `file` the path."""


def validate_uri(uri: str) -> None:
    """Refuse an address that cannot work, before anything is started; no network is used.

    Raises:
        CheckpointError: Unknown kind of address, a malformed one, or a folder that does not exist.
        InputError: The path of a folder is no path.
        SettingsError: Unknown preset.
    """
    address = _parse(uri)
    if address.scheme == "file":
        check_path(Path(address.rest))
        if not Path(address.rest).is_dir():
            _refuse(uri, f"the folder {address.rest} does not exist")
    if address.scheme == "synth":
        preset_config(address.rest)
    if address.scheme == "hf":
        _hub_parts(uri, address.rest)
    if address.scheme == "s3" and not all(_s3_parts(address.rest)):
        _refuse(uri, "an s3 address needs a bucket and a prefix")


def open_source(
    uri: str,
    cache_dir: Path,
    *,
    seed: int = 0,
    progress: Progress | None = None,
    endpoint: str | None = None,
    region: str | None = None,
) -> Path:
    """The folder with the checkpoint at `uri`, fetched or made if need be. Its contents are not checked here.

    Args:
        uri: A folder, `file:///path`, `synth://PRESET`, `hf://org/name@revision` or `s3://bucket/prefix`.
        cache_dir: Where fetched and synthetic checkpoints are kept.
        seed: Seed of a synthetic checkpoint.
        progress: Told about bytes fetched or made.
        endpoint: Endpoint of an S3 service that is not AWS. The Hub's is taken from HF_ENDPOINT by its own client.
        region: S3 region.

    Raises:
        CheckpointError: The address cannot work, or nothing could be fetched from it.
        SettingsError: Unknown preset.
        InputError: The cache cannot be written.
    """
    validate_uri(uri)
    address = _parse(uri)
    if address.scheme == "synth":
        return _synthetic(address.rest, cache_dir / "synth", seed, progress)
    if address.scheme == "hf":
        from nemotron_rl.checkpoint.fetch_hub import fetch_hub  # its client takes over a second to import

        repo, revision = _hub_parts(uri, address.rest)
        return fetch_hub(repo, revision, cache_dir / "hf", progress)
    if address.scheme == "s3":
        from nemotron_rl.checkpoint.fetch_s3 import fetch_s3

        bucket, prefix = _s3_parts(address.rest)
        return fetch_s3(bucket, prefix, cache_dir / "s3", progress, endpoint, region)
    return Path(address.rest)


@contextmanager
def open_ranges(
    uri: str,
    cache_dir: Path,
    *,
    seed: int = 0,
    progress: Progress | None = None,
    endpoint: str | None = None,
    region: str | None = None,
) -> Iterator[ByteSource]:
    """The checkpoint at `uri` as something whose parts can be read, without fetching the rest of it.

    Only `synth://` uses `cache_dir`, `seed` and `progress`. Arguments and errors as for `open_source`.
    """
    validate_uri(uri)
    address = _parse(uri)
    if address.scheme == "hf":
        from nemotron_rl.checkpoint.ranged.hub import HubSource  # its client takes over a second to import

        source: ByteSource = HubSource(*_hub_parts(uri, address.rest))
    elif address.scheme == "s3":
        from nemotron_rl.checkpoint.ranged.s3 import S3Source

        source = S3Source(*_s3_parts(address.rest), endpoint, region)
    else:
        source = FolderSource(open_source(uri, cache_dir, seed=seed, progress=progress))
    try:
        yield source
    finally:
        source.close()


def source_name(uri: str) -> str:
    """What provenance may say about a source: the address itself, or only the name of a local folder."""
    address = _parse(uri)
    return Path(address.rest).absolute().name if address.scheme == "file" else uri


def pinned(uri: str, revision: str | None) -> str:
    """The address of this state of a source: with the commit, where the place has commits."""
    address = _parse(uri)
    if revision is None or address.scheme != "hf":
        return uri
    return f"hf://{_hub_parts(uri, address.rest)[0]}@{revision}"


def _parse(uri: str) -> _Address:
    scheme, separator, rest = uri.partition("://")
    if not separator:
        if not uri:
            _refuse(uri, "it is empty")
        return _Address("file", uri)
    if scheme not in _SCHEMES:
        close = nearest(scheme, _SCHEMES)
        _refuse(uri, f"unknown scheme '{scheme}'" + (f", did you mean '{close}'?" if close else ""))
    if scheme == "file":
        parts = urlsplit(uri)
        if parts.netloc not in ("", "localhost"):
            _refuse(uri, f"a file address has three slashes, not the host '{parts.netloc}'")
        return _Address("file", unquote(parts.path))
    return _Address(scheme, rest.strip("/"))


def _hub_parts(uri: str, rest: str) -> tuple[str, str]:
    """Repository and revision."""
    found = _HUB.fullmatch(rest)
    if found is None:
        _refuse(uri, "a Hub address is hf://org/name, with @revision for anything but main")
    return found["repo"], found["revision"] or "main"


def _s3_parts(rest: str) -> tuple[str, str]:
    """Bucket and prefix."""
    bucket, _, prefix = rest.partition("/")
    return bucket, prefix


def _synthetic(preset: str, cache_dir: Path, seed: int, progress: Progress | None) -> Path:
    """The synthetic checkpoint of a preset, made once per configuration, seed and recipe."""
    made_from: list[Any] = [sorted(preset_config(preset).items()), seed, RECIPE]
    digest = hashlib.sha256(repr(made_from).encode()).hexdigest()[:12]
    folder = cache_dir / f"{preset}-{digest}"
    return make_once(folder, lambda: synthesize(preset, folder, seed=seed, progress=progress))


def _refuse(uri: str, why: str) -> NoReturn:
    raise CheckpointError(f"cannot use '{uri}' as a checkpoint: {why}. Accepted: {ACCEPTED}.")
