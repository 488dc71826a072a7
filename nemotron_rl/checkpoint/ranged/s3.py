"""The objects directly under an S3 prefix as a source of byte ranges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import obstore
from obstore.exceptions import GenericError, PreconditionError

from nemotron_rl.checkpoint.fetch_s3 import s3_store, talking_to
from nemotron_rl.checkpoint.ranged.plan import PIECE_BYTES
from nemotron_rl.checkpoint.ranged.source import STREAM_BYTES, SourceChanged, SourceFile, Transient, is_plain_name
from nemotron_rl.errors import CheckpointError


class S3Source:
    """Objects as they were when they were listed: a later upload is an error, never a mixture."""

    revision: str | None = None
    workers = 8
    piece_bytes = PIECE_BYTES

    def __init__(self, bucket: str, prefix: str, endpoint: str | None = None, region: str | None = None) -> None:
        """List the objects.

        Credentials, and the endpoint and region where None, come from the AWS_* environment; obstore reads it.

        Raises:
            CheckpointError: Nothing there, or no access.
        """
        self.where = f"s3://{bucket}/{prefix}"
        with talking_to(self.where):
            self._store = s3_store(bucket, prefix, endpoint, region)
            listed = sorted(obstore.list(self._store).collect(), key=lambda item: str(item["path"]))
        self.files: Mapping[str, SourceFile] = {
            item["path"]: SourceFile(item["path"], item["size"], (item["e_tag"] or "").strip('"'))
            for item in listed
            if is_plain_name(item["path"])
        }
        if not self.files:
            raise CheckpointError(f"{self.where} holds no files; a checkpoint's files lie directly under the prefix")

    def read(self, file: str, start: int, stop: int) -> Iterator[memoryview]:
        """See `ByteSource.read`. obstore itself refuses an answer that is not the range."""
        expected = self.files[file].etag
        options: Any = {"range": (start, stop), "if_match": f'"{expected}"'}
        with talking_to(f"{self.where}/{file}"), self._faults_of(file):
            result = obstore.get(self._store, file, options=options)
            etag = (result.meta["e_tag"] or "").strip('"')
            if etag != expected:
                raise SourceChanged(self.where, file, f"its ETag was {expected} and is {etag}")
            for chunk in result.stream(min_chunk_size=STREAM_BYTES):
                yield memoryview(chunk)

    @contextmanager
    def _faults_of(self, file: str) -> Iterator[None]:
        try:
            yield
        except PreconditionError as error:
            raise SourceChanged(self.where, file, f"its ETag is no longer {self.files[file].etag}") from error
        except FileNotFoundError as error:  # what obstore raises for it
            raise SourceChanged(self.where, file, "it was deleted") from error
        except GenericError as error:  # the network, or a server in trouble
            raise Transient(f"{error!s:.200}") from error

    def close(self) -> None:
        """obstore closes its connections itself."""
