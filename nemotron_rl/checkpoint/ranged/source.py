"""What a place with files must be able to do so that parts of them can be read. The places themselves are elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from nemotron_rl.errors import CheckpointError

STREAM_BYTES = 1 << 20
"""About as much as a source holds in memory per read."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file, and what tells one state of it from another."""

    name: str
    size: int
    """Bytes."""
    etag: str
    """Changes when the content does; without quotes."""


class ByteSource(Protocol):
    """A flat set of files that can be read in parts, by several threads at once."""

    @property
    def where(self) -> str:
        """The address, for messages."""

    @property
    def revision(self) -> str | None:
        """The commit that is read, where the place has commits."""

    @property
    def files(self) -> Mapping[str, SourceFile]:
        """By name, as they were when the source was opened; all reads are of this state."""

    @property
    def workers(self) -> int:
        """How many reads at once serve it well."""

    @property
    def piece_bytes(self) -> int:
        """The longest read that serves it well; as much is read again after a kill, by each worker."""

    def read(self, file: str, start: int, stop: int) -> Iterator[bytes | memoryview]:
        """Bytes `start` to `stop` (exclusive) of a file, in order; a chunk is valid until the next is asked for.

        Raises:
            Transient: It failed in a way that may pass; what came before is right.
            CheckpointError: It cannot work, or the file is not what it was; names the file.
        """

    def close(self) -> None:
        """Give back connections. May be called twice."""


class Transient(Exception):
    """A read failed in a way that may pass. Never leaves this package."""

    def __init__(self, why: str, wait_s: float | None = None, verdict: CheckpointError | None = None) -> None:
        """`wait_s` is how long the server asked to be left alone, `verdict` the error if it does not pass."""
        super().__init__(why)
        self.wait_s, self.verdict = wait_s, verdict


class SourceUnavailable(CheckpointError):
    """A source kept failing. What was fetched is kept: the same command continues there."""

    exit_code = 1


class SourceChanged(CheckpointError):
    """A file is no longer what it was when the plan was made."""

    def __init__(self, where: str, file: str, what: str) -> None:
        """`what` completes "it changed while it was read: …"."""
        super().__init__(f"{where}/{file} changed while it was read: {what}. Start again when its upload has ended")


def is_plain_name(name: str) -> bool:
    """A visible file directly in the place: no separators, so it cannot leave the folder that it is written to."""
    return bool(name) and not name.startswith(".") and not set(name) & set("/\\\0")
