"""What a conversion was made from and what it made: the record that lies in its result.

By it a second conversion into the same folder knows whether it is there already, and damage is found before it is used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from nemotron_rl.checkpoint.companions import is_companion
from nemotron_rl.checkpoint.converted import FOLDER, is_converted
from nemotron_rl.checkpoint.layout import CONFIG_FILE, INDEX_FILE
from nemotron_rl.checkpoint.progress import Meter, Progress
from nemotron_rl.config.base import Frozen
from nemotron_rl.errors import CheckpointError, InputError

Format = Literal["torch_dist", "hf"]
RECORD_FILE = ".nemotron_rl_convert.json"
"""Hidden, so that whoever copies a checkpoint, as a slice or an export, leaves it behind: it is about one folder."""
_WORKERS, _CHUNK = 4, 4 << 20


class FileDigest(Frozen):
    """One file's bytes."""

    size: int
    sha256: str


class ConversionRecord(Frozen):
    """Source and result of a conversion."""

    format: Format
    """Of the result."""
    source: str
    """The source's name: its address, or the name of a local folder, never a path."""
    source_digest: str
    """Names the source's bytes; see `combined`."""
    files: dict[str, FileDigest]
    """Every file of the result but this one, by its path below the folder."""
    versions: dict[str, str]
    """Packages that made it."""

    def write(self, folder: Path) -> None:
        """Write the record into `folder`."""
        (folder / RECORD_FILE).write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> ConversionRecord | None:
        """The record in `folder`, None when there is none.

        Raises:
            CheckpointError: The file is there and cannot be read.
        """
        file = folder / RECORD_FILE
        if file.exists() and not file.is_file():  # reading a pipe would never end
            raise CheckpointError(f"{file} is not the record of a conversion: it is no regular file")
        try:
            return cls.model_validate_json(file.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, UnicodeDecodeError, ValidationError) as error:
            raise CheckpointError(f"{file} is not the record of a conversion: {error!s:.300}") from error


def digest_files(folder: Path, progress: Progress | None = None) -> dict[str, FileDigest]:
    """Every file that belongs to the checkpoint or converted folder, read once, several at a time.

    Raises:
        CheckpointError: A file cannot be read.
    """
    files = {str(path.relative_to(folder)): path for path in _content(folder)}
    meter = Meter(sum(path.stat().st_size for path in files.values()), progress)
    with ThreadPoolExecutor(_WORKERS) as pool:
        return dict(zip(files, pool.map(lambda path: _digest(path, meter), files.values()), strict=True))


def combined(files: Mapping[str, FileDigest]) -> str:
    """One digest of all files' names and bytes."""
    lines = "".join(f"{name} {file.size} {file.sha256}\n" for name, file in sorted(files.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def check_unchanged(folder: Path, found: Mapping[str, FileDigest]) -> None:
    """The files of a converted folder are those that its conversion wrote; without a record nothing is compared.

    Raises:
        CheckpointError: A file is missing or has other bytes.
    """
    record = ConversionRecord.read(folder)
    if record is None:
        return
    for name, file in record.files.items():
        if name not in found:
            raise CheckpointError(f"{folder / name} is missing; {RECORD_FILE} names it. Convert the checkpoint again.")
        if found[name] != file:
            raise CheckpointError(f"{folder / name} is damaged: {_difference(file, found[name])}.")


def is_there_already(dst: Path, to: Format, source_digest: str) -> bool:
    """Whether `dst` holds the result of the same conversion, with every file in its size; False when it is free.

    Raises:
        InputError: It holds something else.
    """
    record = ConversionRecord.read(dst)
    if record is None:
        return False
    if (record.format, record.source_digest) != (to, source_digest):
        raise InputError(
            f"{dst} holds the conversion of {record.source} to {record.format}, not of this source to {to}; "
            "choose another folder, or delete this one"
        )
    for name, file in record.files.items():
        if not (dst / name).is_file() or (dst / name).stat().st_size != file.size:
            raise InputError(
                f"{dst} holds this conversion, but {name} is missing or has another size; delete the folder, try again"
            )
    return True


def _content(folder: Path) -> list[Path]:
    """The files that a conversion reads."""
    top = [path for path in sorted(folder.iterdir()) if path.is_file()]
    if is_converted(folder):
        kept = [path for path in top if path.name == CONFIG_FILE or is_companion(path.name)]
        return kept + sorted(path for path in (folder / FOLDER).rglob("*") if path.is_file())
    return [
        path
        for path in top
        if path.name in (CONFIG_FILE, INDEX_FILE) or is_companion(path.name) or path.suffix == ".safetensors"
    ]


def _digest(path: Path, meter: Meter) -> FileDigest:
    digest, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
                meter.add(len(chunk))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    return FileDigest(size=size, sha256=digest.hexdigest())


def _difference(wanted: FileDigest, found: FileDigest) -> str:
    if wanted.size != found.size:
        return f"it has {found.size:,} of {wanted.size:,} bytes"
    return f"its SHA-256 is {found.sha256[:16]}…, and was {wanted.sha256[:16]}… when it was converted"
