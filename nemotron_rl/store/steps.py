"""Numbered results of one run, `{root}/step_N`, written in place by many processes: files first, the manifest last.

    {root}/step_N/manifest.json
    {root}/step_N/files-{attempt}/...

The artifact store's rules, with a readable name instead of a digest, on a file system that all writers share. One
process of a run holds the lock, commits and removes; a step without a manifest does not exist.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import JsonValue, ValidationError

from nemotron_rl.config.run import StoreSettings
from nemotron_rl.errors import InputError, StoreError
from nemotron_rl.store.fetching import require_intact
from nemotron_rl.store.manifest import FileEntry, Manifest, artifact_digest
from nemotron_rl.store.objects import open_objects
from nemotron_rl.store.versions import installed_versions

KIND = "step"
MANIFEST = "manifest.json"
_STEP = re.compile(r"step_(0|[1-9]\d*)")


@dataclass(frozen=True)
class Draft:
    """A step being written."""

    step: int
    attempt: str
    """Distinguishes this writing from any other of the same step."""
    folder: Path
    """Where all processes put the step's files."""


class StepStore:
    """The steps below one folder."""

    def __init__(self, root: Path) -> None:
        """`root` is made when something is written or locked."""
        self.root = root

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the right to write here; it ends with the process, however that ends.

        Raises:
            InputError: another process holds it, or the folder cannot be written.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            file = (self.root / ".lock").open("a+")
        except OSError as error:
            raise InputError(f"cannot write {self.root}: {error.strerror}; choose another --output-dir") from error
        with file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unlike flock's, no child inherits it
            except BlockingIOError as error:
                file.seek(0)
                holder = file.read().strip() or "another process"
                raise InputError(
                    f"{self.root} is in use by {holder}; wait for that run's end, or use another --run-id"
                ) from error
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            yield

    def complete(self) -> list[int]:
        """Steps that were committed, ascending."""
        return [step for step in self._steps() if (self._folder(step) / MANIFEST).exists()]

    def manifest(self, step: int) -> Manifest:
        """What is known about a step.

        Raises:
            InputError: it was not committed; says which were.
            StoreError: its manifest is broken.
        """
        path = self._folder(step) / MANIFEST
        try:
            manifest = Manifest.model_validate_json(path.read_bytes())
        except FileNotFoundError as error:
            there = ", ".join(map(str, self.complete())) or "none"
            raise InputError(f"{self._folder(step)} is not a complete checkpoint; complete steps: {there}") from error
        except ValidationError as error:
            raise StoreError(f"{path} is broken\n  {self._remedy(step)}") from error
        if manifest.facts.get("step") != step:
            raise StoreError(f"{path} says that it is step {manifest.facts.get('step')}\n  {self._remedy(step)}")
        return manifest

    def files(self, manifest: Manifest, part: int = 0, parts: int = 1) -> Path:
        """The folder with a step's files, of which every `parts`-th, from number `part` on, is checked byte for byte.

        Raises:
            StoreError: naming a file that is missing, truncated or altered.
        """
        step = int(str(manifest.facts["step"]))
        share = manifest.model_copy(update={"files": manifest.files[part::parts]})
        folder = self._folder(step) / f"files-{manifest.attempt}"
        return require_intact(folder, share, f"delete {self._folder(step)}, and the run resumes from the step before")

    def begin(self, step: int) -> Draft:
        """Make the folder of a new step.

        Raises:
            StoreError: it cannot be made.
        """
        attempt = secrets.token_hex(8)
        folder = self._folder(step) / f"files-{attempt}"
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise StoreError(f"cannot save {folder}: {error.strerror}") from error
        return Draft(step, attempt, folder)

    def commit(
        self,
        draft: Draft,
        files: Sequence[FileEntry],
        *,
        inputs: Sequence[str],
        settings: Mapping[str, JsonValue],
        facts: Mapping[str, JsonValue],
    ) -> None:
        """Make the step exist; all its files must have reached the disk.

        Raises:
            StoreError: the manifest cannot be written, or the step exists already.
        """
        manifest = Manifest(
            kind=KIND,
            digest=artifact_digest(KIND, inputs, {**settings, "step": draft.step}),
            attempt=draft.attempt,
            files=tuple(sorted(files, key=lambda entry: entry.path)),
            inputs=tuple(inputs),
            settings=dict(settings),
            facts={**facts, "step": draft.step},
            versions=installed_versions(),
            created=datetime.now(UTC),
        )
        objects = open_objects(StoreSettings(), self._folder(draft.step).absolute().as_uri())
        if not objects.create(MANIFEST, manifest.model_dump_json(indent=1).encode()):
            raise StoreError(f"{self._folder(draft.step)} was committed by another run of the same id meanwhile")

    def discard(self, draft: Draft) -> None:
        """Remove a step that will not be committed."""
        shutil.rmtree(draft.folder, ignore_errors=True)

    def remove(self, step: int) -> None:
        """Delete a step; from the first moment on it does not exist."""
        (self._folder(step) / MANIFEST).unlink(missing_ok=True)
        shutil.rmtree(self._folder(step), ignore_errors=True)

    def keep_last(self, count: int) -> None:
        """Delete all complete steps but the last `count`."""
        for step in self.complete()[:-count]:
            self.remove(step)

    def sweep(self) -> list[int]:
        """Delete what was left half-written, and return the steps that are gone with it. Only under the lock."""
        complete = set(self.complete())
        for step in complete:
            kept = f"files-{self.manifest(step).attempt}"
            for other in self._folder(step).glob("files-*"):
                if other.name != kept:
                    shutil.rmtree(other, ignore_errors=True)
        gone = [step for step in self._steps() if step not in complete]
        for step in gone:
            self.remove(step)
        return gone

    def _steps(self) -> list[int]:
        names = (_STEP.fullmatch(path.name) for path in self.root.glob("step_*"))
        return sorted(int(name[1]) for name in names if name)

    def _folder(self, step: int) -> Path:
        return self.root / f"step_{step}"

    def _remedy(self, step: int) -> str:
        return f"Delete {self._folder(step)}, and the run resumes from the step before."


def file_entry(folder: Path, path: Path) -> FileEntry:
    """Size and hash of a file below `folder`, which is on the disk when this returns."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return FileEntry(path=path.relative_to(folder).as_posix(), size=path.stat().st_size, sha256=sha256)
