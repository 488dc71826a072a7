"""Objects by name, on a file system or in S3: the few operations an artifact store needs, with retries and errors.

Not a general client: no listing, no overwriting, no knowledge of manifests.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    JoinError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import LocalStore, S3Store
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from nemotron_rl.config.run import StoreSettings
from nemotron_rl.errors import InputError, StoreError

if TYPE_CHECKING:
    from obstore.store import S3Config

MIB = 1024 * 1024
READ_SIZE = 4 * MIB
MIN_PART = 8 * MIB  # S3 wants at least 5 MiB
MAX_PARTS = 10_000  # of one S3 multipart upload


@dataclass(frozen=True)
class Copied:
    """What went through while a file was copied."""

    size: int
    sha256: str


class _Meter:
    """Counts and hashes the bytes that pass through."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._size = 0

    def watch(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self._hash.update(chunk)
            self._size += len(chunk)
            yield chunk

    def copied(self) -> Copied:
        return Copied(self._size, self._hash.hexdigest())


class Objects:
    """Objects below one address. Safe to use from several threads; holds nothing that needs closing."""

    def __init__(self, uri: str, backend: LocalStore | S3Store, base: str, root: Path | None = None) -> None:
        self.uri = uri
        """`file:///path` or `s3://bucket/prefix`, without a slash at the end."""
        self.root = root
        """The folder of a store on a file system; None for S3."""
        self._backend = backend
        self._base = base

    def read(self, name: str) -> bytes | None:
        """The bytes of a small object, or None when there is none."""
        try:
            with self._explained("read", name):
                return self._retrying(lambda: bytes(self._backend.get(self._key(name)).bytes()))
        except FileNotFoundError:
            return None

    def create(self, name: str, data: bytes) -> bool:
        """Write a small object unless there is one of that name; False when there is.

        A request that was repeated after a lost answer may meet its own object, so a False needs a look at it.
        """
        try:
            with self._explained("write", name):
                self._retrying(lambda: self._backend.put(self._key(name), data, mode="create"))
        except AlreadyExistsError:
            return False
        return True

    def upload(self, source: Path, name: str) -> Copied:
        """Stream a file into an object; the answer is what was sent, whatever happens to the file meanwhile."""
        size = source.stat().st_size
        part = max(MIN_PART, -(-size // (MAX_PARTS - 1)))

        def once() -> Copied:
            meter = _Meter()
            with source.open("rb") as file:
                chunks = meter.watch(_chunks(file))
                if size <= MIN_PART:  # one request instead of three
                    self._backend.put(self._key(name), b"".join(chunks))
                else:
                    self._backend.put(self._key(name), chunks, chunk_size=part, max_concurrency=4)
            return meter.copied()

        with self._explained("write", name):
            return self._retrying(once)

    def download(self, name: str, target: Path) -> Copied:
        """Stream an object into a file.

        Raises:
            FileNotFoundError: there is no such object.
        """

        def once() -> Copied:
            meter = _Meter()
            stream = self._backend.get(self._key(name)).stream(min_chunk_size=READ_SIZE)
            with target.open("wb") as file:
                file.writelines(meter.watch(bytes(chunk) for chunk in stream))
            return meter.copied()

        with self._explained("read", name):
            return self._retrying(once)

    def delete(self, name: str) -> None:
        """Delete an object; it is fine if there is none."""
        try:
            with self._explained("delete", name):
                self._retrying(lambda: self._backend.delete(self._key(name)))
        except FileNotFoundError:
            return

    def check_writable(self) -> None:
        """Write and delete a small probe.

        Raises:
            InputError: the folder or bucket does not take it.
        """
        if self.root is None:
            probe = f"probe-{secrets.token_hex(8)}"
            self.create(probe, b"may this be written?")
            self.delete(probe)
            return
        # Not through obstore: where files cannot be created, such as in /proc, its put never returns (0.12.1).
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root):
                pass
        except OSError as error:
            raise InputError(f"cannot write {self.uri}: {error.strerror}\n  {self._write_hint()}") from error

    def _key(self, name: str) -> str:
        return f"{self._base}/{name}" if self._base else name

    def _retrying[T](self, action: Callable[[], T]) -> T:
        """Repeat an action that failed for a reason that may pass; obstore itself repeats single requests."""
        policy = Retrying(
            retry=retry_if_exception_type((GenericError, JoinError)),
            stop=stop_after_attempt(3 if self.root is None else 1),
            wait=wait_random_exponential(multiplier=0.5, max=10),
            reraise=True,
        )
        return policy(action)

    @contextmanager
    def _explained(self, verb: str, name: str) -> Iterator[None]:
        """Turn the backend's errors into ours, except those that are an answer: not found, already there."""
        try:
            yield
        except AlreadyExistsError:
            raise
        except (PermissionDeniedError, UnauthenticatedError, PermissionError) as error:
            raise InputError(f"may not {verb} {self.uri}/{name}: {_reason(error)}\n  {self._write_hint()}") from error
        except FileNotFoundError as error:
            if verb == "write":  # no such bucket
                raise InputError(f"cannot write {self.uri}/{name}: {_reason(error)}\n  {self._write_hint()}") from error
            raise
        except (BaseError, OSError) as error:
            raise StoreError(
                f"cannot {verb} {self.uri}/{name}: {_reason(error)}\n"
                "  Nothing half-written counts as finished; run again when the store works."
            ) from error

    def _write_hint(self) -> str:
        if self.root is not None:
            return "Choose a folder that you may write: --output-dir DIR, or --set store.uri=file:///DIR."
        return (
            "Check that the bucket exists (store.uri, store.endpoint, store.region) and that AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY are set and allow it."
        )


def open_objects(settings: StoreSettings, uri: str) -> Objects:
    """The objects at `uri` (`file:///path` or `s3://bucket/prefix`). Contacts and creates nothing.

    Raises:
        InputError: the address is neither.
    """
    parts = urlsplit(uri)
    path = unquote(parts.path).strip("/")
    if parts.scheme == "s3" and parts.netloc:
        return Objects(f"s3://{parts.netloc}/{path}".rstrip("/"), _s3_bucket(settings, parts.netloc), path)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and path:
        root = Path("/", path)
        return Objects(root.as_uri(), LocalStore(), path, root)
    raise InputError(
        f"store.uri: {uri!r} is not the address of a store\n"
        "  Allowed: file:///absolute/path or s3://bucket/prefix; leave it out for {output_dir}/store."
    )


def _s3_bucket(settings: StoreSettings, bucket: str) -> S3Store:
    """A bucket. Credentials are those of the AWS_* environment now; obstore reads them itself."""
    endpoint = settings.endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    plain_http = endpoint is not None and endpoint.startswith("http://")
    config: S3Config = {"region": settings.region}
    if endpoint is not None:
        config["endpoint"] = endpoint
    return S3Store(
        bucket,
        config=config,
        client_options={"allow_http": plain_http, "connect_timeout": "5 seconds"},
        retry_config={"max_retries": 5, "retry_timeout": timedelta(seconds=60)},
    )


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(READ_SIZE):
        yield chunk


def _reason(error: Exception) -> str:
    """The first line of an error: obstore appends pages of debug output."""
    return (str(error) or type(error).__name__).splitlines()[0]
