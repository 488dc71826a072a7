"""What an artifact is: its name, its list of files, and the digest that names it. Reads and writes nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, model_validator

KIND = r"^[a-z][a-z0-9-]{0,31}$"
DIGEST = r"^[0-9a-f]{64}$"
ATTEMPT = r"^[0-9a-f]{16}$"


def portable_path(path: str) -> str:
    r"""Return `path` when it names a file below a folder on every system and store.

    Raises:
        ValueError: the path is absolute, empty, leaves its folder, or has a control character or a backslash.
    """
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in path or not path.isprintable():
        raise ValueError(f"{path!r} is not a plain relative path")
    return path


class Record(BaseModel):
    """Immutable, and strict about keys. (`config.Frozen` has a method `digest`; here it is a field.)"""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Artifact(Record):
    """A finished, immutable result. Small, so that tasks can hand it on instead of the files."""

    kind: str = Field(pattern=KIND)
    """What it is, such as `slice`; the first folder below the store."""
    digest: str = Field(pattern=DIGEST)
    """Names what it was made from; see `artifact_digest`."""
    uri: str
    """`{store}/{kind}/{digest}`."""


class FileEntry(Record):
    """One file of an artifact."""

    path: Annotated[str, AfterValidator(portable_path)]
    """Path below the artifact's folder, with forward slashes."""
    size: int = Field(ge=0)
    """Bytes."""
    sha256: str = Field(pattern=DIGEST)
    """Of the file's bytes."""


class Manifest(Record):
    """Everything known about an artifact. It is written last: an artifact without one does not exist."""

    kind: str = Field(pattern=KIND)
    digest: str = Field(pattern=DIGEST)
    attempt: str = Field(pattern=ATTEMPT)
    """The writer whose files these are; they are below `files-{attempt}`."""
    files: tuple[FileEntry, ...] = Field(min_length=1)
    inputs: tuple[str, ...]
    """Digests of the artifacts it was made from."""
    settings: dict[str, JsonValue]
    """The settings that it depends on."""
    facts: dict[str, JsonValue]
    """What its maker learned. Numbers that are not finite are stored as null."""
    versions: dict[str, str]
    """Installed versions of the packages that can change the bytes."""
    created: datetime

    @model_validator(mode="after")
    def _paths_are_distinct(self) -> Self:
        paths = {entry.path for entry in self.files}
        folders = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
        if len(paths) != len(self.files) or paths & folders:
            raise ValueError("two files have the same path, or one is the folder of another")
        return self

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files)


def artifact_digest(kind: str, inputs: Sequence[str], settings: Mapping[str, JsonValue]) -> str:
    """64 hex digits that name the artifact of `kind` made from `inputs` (digests, in order) under `settings`.

    Equal arguments give equal digests on every machine, whatever the order of the settings' keys.

    Raises:
        ValueError: a setting is not JSON, such as NaN.
    """
    named = {"kind": kind, "inputs": list(inputs), "settings": dict(settings)}
    text = json.dumps(named, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(f"nemotron-rl artifact 1:{text}".encode()).hexdigest()
