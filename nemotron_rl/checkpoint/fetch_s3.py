"""Fetches the files directly under an S3 prefix into a cache folder that appears complete or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from nemotron_rl.checkpoint.new_folder import make_once, new_folder
from nemotron_rl.checkpoint.progress import Meter, Progress
from nemotron_rl.errors import CheckpointError, InputError

_CHUNK_BYTES = 8 << 20
_RETRIES: Any = {"max_retries": 5, "retry_timeout": timedelta(seconds=60)}


def fetch_s3(
    bucket: str, prefix: str, cache_dir: Path, progress: Progress | None, endpoint: str | None, region: str | None
) -> Path:
    """A folder with the objects under `prefix`; keyed by their names, sizes and ETags, so it is fetched once.

    Credentials, and the endpoint and region where None, come from the AWS_* environment, which obstore reads itself.

    Raises:
        CheckpointError: Nothing there, no access, or an object changed while it was fetched.
        InputError: The cache cannot be written.
    """
    where = f"s3://{bucket}/{prefix}"
    with talking_to(where):
        store = s3_store(bucket, prefix, endpoint, region)
        objects = {item["path"]: item for item in obstore.list(store).collect() if _is_plain_name(item["path"])}
    if not objects:
        raise CheckpointError(f"{where} holds no files; a checkpoint's files lie directly under the prefix")
    folder = cache_dir / f"{prefix.rsplit('/', 1)[-1]}-{_digest(where, endpoint, objects)}"
    meter = Meter(sum(item["size"] for item in objects.values()), progress)

    def fetch() -> None:
        with new_folder(folder) as partial:
            for name, item in sorted(objects.items()):
                with talking_to(f"{where}/{name}"):
                    _fetch(store, name, item, partial / name, meter)

    return make_once(folder, fetch)


def s3_store(bucket: str, prefix: str, endpoint: str | None, region: str | None) -> S3Store:
    """The objects under a prefix; what is None comes from the AWS_* environment."""
    given: dict[str, Any] = {"endpoint": endpoint, "region": region}
    options: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if endpoint is not None and endpoint.startswith("http://"):
        options["client_options"] = {"allow_http": True}
    return S3Store(bucket, prefix=prefix, retry_config=_RETRIES, **options)


def _fetch(store: S3Store, name: str, item: Mapping[str, Any], path: Path, meter: Meter) -> None:
    """One object, checked against the listing that the plan was made from."""
    result = obstore.get(store, name)
    if result.meta["e_tag"] != item["e_tag"]:
        raise CheckpointError(f"{name} changed while the checkpoint was fetched; try again when its upload has ended")
    written = 0
    try:
        with path.open("wb") as file:
            for chunk in result.stream(min_chunk_size=_CHUNK_BYTES):
                written += file.write(chunk)
                meter.add(len(chunk))
    except OSError as error:
        raise InputError(f"cannot write {path.name} into the cache: {error.strerror or error}") from error
    if written != item["size"]:
        raise CheckpointError(f"{name}: got {written} bytes of {item['size']}")


def _digest(where: str, endpoint: str | None, objects: Mapping[str, Mapping[str, Any]]) -> str:
    listing = [(name, item["size"], item["e_tag"]) for name, item in sorted(objects.items())]
    return hashlib.sha256(repr((where, endpoint, listing)).encode()).hexdigest()[:12]


def _is_plain_name(path: str) -> bool:
    return "/" not in path and "\\" not in path and path not in ("", ".", "..")


@contextmanager
def talking_to(where: str) -> Iterator[None]:
    """Errors of the client as a CheckpointError about `where`."""
    try:
        yield
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise CheckpointError(
            f"no access to {where}: check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the bucket"
        ) from error
    except BaseError as error:
        raise CheckpointError(f"{where} could not be read: {error!s:.300}") from error
