"""The artifact store: files first, the manifest last, and nothing without a manifest exists.

    {store}/{kind}/{digest}/manifest.json
    {store}/{kind}/{digest}/files-{attempt}/...

Two writers of one digest never mix, because each writes below its own attempt; whoever creates the manifest first
decides whose files count, and the other one deletes its own. Retention of old artifacts is not done here.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from pydantic import JsonValue, ValidationError

from nemotron_rl.config.run import StoreSettings
from nemotron_rl.errors import NemotronRLError, StoreError
from nemotron_rl.store.fetching import fetch_files, require_intact
from nemotron_rl.store.folder import list_folder
from nemotron_rl.store.manifest import Artifact, FileEntry, Manifest
from nemotron_rl.store.objects import Objects, open_objects
from nemotron_rl.store.versions import installed_versions

MANIFEST = "manifest.json"
UPLOADS = 4  # files at a time; each streams its parts concurrently too


class ArtifactStore:
    """Finds, commits and fetches artifacts at one address."""

    def __init__(self, objects: Objects, cache_dir: Path) -> None:
        self._objects = objects
        self._cache_dir = cache_dir

    @property
    def uri(self) -> str:
        """The store's address."""
        return self._objects.uri

    def check_writable(self) -> None:
        """Find out now, rather than after hours of work, that nothing can be stored.

        Raises:
            InputError: the folder or bucket does not take a probe.
        """
        self._objects.check_writable()

    def find(self, kind: str, digest: str) -> Artifact | None:
        """The artifact of that name, or None when it does not exist (yet, or any more).

        Raises:
            StoreError: its manifest is broken.
        """
        artifact = Artifact(kind=kind, digest=digest, uri=f"{self.uri}/{kind}/{digest}")
        return artifact if self._read_manifest(artifact) else None

    def manifest(self, artifact: Artifact) -> Manifest:
        """What is known about an artifact.

        Raises:
            StoreError: it is not in this store, or its manifest is broken.
        """
        if artifact.uri != f"{self.uri}/{artifact.kind}/{artifact.digest}":
            raise StoreError(f"{artifact.uri} is not in the store {self.uri}; use the store that it was written to")
        manifest = self._read_manifest(artifact)
        if manifest is None:
            raise StoreError(f"{artifact.uri} does not exist: it has no {MANIFEST}; run again to make it")
        return manifest

    def commit(
        self,
        folder: Path,
        *,
        kind: str,
        digest: str,
        inputs: Sequence[str],
        settings: Mapping[str, JsonValue],
        facts: Mapping[str, JsonValue],
    ) -> Artifact:
        """Store a copy of `folder` as an artifact; if another writer was first, theirs is returned.

        Args:
            folder: Its files, at any depth, are the artifact's. Links to files are followed.
            kind: What it is.
            digest: `artifact_digest(kind, inputs, settings)`.
            inputs: Digests of the artifacts it was made from.
            settings: The settings it depends on.
            facts: What its maker learned.

        Raises:
            InputError: the store cannot be written.
            StoreError: the folder is empty or holds something that cannot be stored, or the store failed.
        """
        if existing := self.find(kind, digest):
            return existing
        artifact = Artifact(kind=kind, digest=digest, uri=f"{self.uri}/{kind}/{digest}")
        files = list_folder(folder)
        self.check_writable()
        attempt = secrets.token_hex(8)
        try:
            manifest = Manifest(
                kind=kind,
                digest=digest,
                attempt=attempt,
                files=self._upload(artifact, attempt, files),
                inputs=tuple(inputs),
                settings=dict(settings),
                facts=dict(facts),
                versions=installed_versions(),
                created=datetime.now(UTC),
            )
        except BaseException as error:
            self._give_up(artifact, attempt, files, error)
            raise
        # From here on the manifest may exist, even when the request seems to fail: the files must stay.
        self._objects.create(_manifest_name(artifact), manifest.model_dump_json(indent=1).encode())
        if self.manifest(artifact).attempt != attempt:
            self._delete_attempt(artifact, attempt, files)
        return artifact

    def fetch(self, artifact: Artifact) -> Path:
        """A folder with the artifact's files, to be read only. In S3's case they are downloaded once and kept.

        Raises:
            StoreError: a file is missing, truncated or altered.
        """
        manifest = self.manifest(artifact)
        name = f"{artifact.kind}/{artifact.digest}/files-{manifest.attempt}"
        remedy = f"delete {artifact.uri}/{MANIFEST} and run again, and it is made anew"
        if self._objects.root is not None:
            return require_intact(self._objects.root / name, manifest, remedy)
        return fetch_files(self._objects, name, manifest, self._cache_dir / name, remedy)

    def _read_manifest(self, artifact: Artifact) -> Manifest | None:
        name = _manifest_name(artifact)
        data = self._objects.read(name)
        if data is None:
            return None
        try:
            manifest = Manifest.model_validate_json(data)
        except ValidationError as error:
            problem = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:3])
            raise StoreError(f"{self.uri}/{name} is broken: {problem}\n  Delete it and run again.") from error
        if (manifest.kind, manifest.digest) != (artifact.kind, artifact.digest):
            raise StoreError(
                f"{self.uri}/{name} belongs to {manifest.kind}/{manifest.digest}\n  Delete it and run again."
            )
        return manifest

    def _upload(self, artifact: Artifact, attempt: str, files: Mapping[str, Path]) -> tuple[FileEntry, ...]:
        def send(path: str) -> FileEntry:
            copied = self._objects.upload(files[path], _file_name(artifact, attempt, path))
            return FileEntry(path=path, size=copied.size, sha256=copied.sha256)

        with ThreadPoolExecutor(UPLOADS, thread_name_prefix="upload") as pool:
            return tuple(pool.map(send, files))

    def _give_up(self, artifact: Artifact, attempt: str, files: Mapping[str, Path], error: BaseException) -> None:
        """Remove what was uploaded; when even that fails, say so beside the error that matters."""
        try:
            self._delete_attempt(artifact, attempt, files)
        except NemotronRLError as second:
            error.add_note(f"files below {artifact.uri}/files-{attempt} are left over: {second}")

    def _delete_attempt(self, artifact: Artifact, attempt: str, files: Mapping[str, Path]) -> None:
        for path in files:
            self._objects.delete(_file_name(artifact, attempt, path))


def open_store(settings: StoreSettings, uri: str, cache_dir: Path) -> ArtifactStore:
    """The store at `uri`, which may not exist yet; nothing is contacted or created.

    Args:
        settings: Endpoint and region of an S3 store.
        uri: `file:///path` or `s3://bucket/prefix`, such as `Settings.store_uri`.
        cache_dir: Where artifacts fetched from S3 are kept.

    Raises:
        InputError: the address is neither.
    """
    return ArtifactStore(open_objects(settings, uri), cache_dir)


def _manifest_name(artifact: Artifact) -> str:
    return f"{artifact.kind}/{artifact.digest}/{MANIFEST}"


def _file_name(artifact: Artifact, attempt: str, path: str) -> str:
    return f"{artifact.kind}/{artifact.digest}/files-{attempt}/{path}"
