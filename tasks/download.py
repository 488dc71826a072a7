"""Task: the source checkpoint, found and recorded.

A synthetic one is made here. Of a remote one nothing is fetched yet: the slice fetches the bytes that it needs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from nemotron_rl.checkpoint.progress import Progress
from nemotron_rl.checkpoint.ranged.folder import FolderSource
from nemotron_rl.checkpoint.ranged.source import ByteSource
from nemotron_rl.checkpoint.source import open_ranges, pinned, source_name
from nemotron_rl.config.base import Frozen
from nemotron_rl.config.settings import Settings
from nemotron_rl.errors import CheckpointError
from nemotron_rl.report.transfer import bytes_progress
from nemotron_rl.store import Artifact
from tasks.policy import DAY, stage_task
from tasks.progress import reporter
from tasks.stage import Facts, Recipe, commit, fresh_folder, from_store, run_store, running, work_dir

STAGE = "download"


class Source(Frozen):
    """The checkpoint that a run starts from."""

    artifact: Artifact
    """Its record in the store: where it comes from, and a fingerprint of its files."""
    uri: str
    """Where its bytes are; of a Hub's repository with the commit, which a branch that moves on does not change."""
    folder: Path | None
    """Its files, where they are on this machine."""


@stage_task(STAGE, retries=3, delay_s=10, timeout_s=DAY, tags=("network",))
def download(settings: Settings) -> Source:
    """Find or make the source, and record what it is."""
    with ExitStack() as stage:
        fetch = _Fetch(stage, settings)
        with _open(settings.source.uri, settings, fetch) as found:
            recipe = _recipe(settings.source.uri, found)
            source_uri = pinned(settings.source.uri, found.revision)
            folder = found.path if isinstance(found, FolderSource) else None
        known = run_store(settings).find(recipe.kind, recipe.digest)
        if known and not fetch.begun:
            return from_store(STAGE, settings, Source(artifact=known, uri=source_uri, folder=folder))
        fetch.begin()
        return Source(artifact=known or _record(recipe, settings), uri=source_uri, folder=folder)


@contextmanager
def opened(source: Source, settings: Settings) -> Iterator[ByteSource]:
    """The recorded source, to read parts of it.

    Raises:
        CheckpointError: It cannot be read, or is not what was recorded.
    """
    with _open(source.uri, settings) as found:
        if _recipe(settings.source.uri, found).digest != source.artifact.digest:
            raise CheckpointError(f"{settings.source.uri} has changed since the run began; start another run")
        yield found


def fingerprint(uri: str, folder: Path) -> str:
    """Changes when the source's files do. Their bytes are not read: there may be a terabyte of them.

    What was made here lies in a folder that is named by what it was made from. A folder of the user's own is known by
    its place and by its files' names, sizes and times.
    """
    if "://" in uri and not uri.startswith("file://"):
        return folder.name
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    listing = [(str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(repr((str(folder.absolute()), listing)).encode()).hexdigest()[:32]


def _remote_fingerprint(source: ByteSource) -> str:
    """The commit, or else the files' names, sizes and ETags."""
    if source.revision is not None:
        return source.revision
    listing = [(file.name, file.size, file.etag) for file in source.files.values()]
    return hashlib.sha256(repr((source.where, sorted(listing))).encode()).hexdigest()[:32]


def _open(uri: str, settings: Settings, progress: Progress | None = None) -> AbstractContextManager[ByteSource]:
    return open_ranges(
        uri,
        settings.output_dir.absolute() / "cache" / "sources",
        seed=settings.source.seed,
        progress=progress,
        endpoint=settings.store.endpoint,
        region=settings.store.region,
    )


def _recipe(uri: str, source: ByteSource) -> Recipe:
    mark = fingerprint(uri, source.path) if isinstance(source, FolderSource) else _remote_fingerprint(source)
    return Recipe("source", (), {"source": source_name(uri), "fingerprint": mark})


def _record(recipe: Recipe, settings: Settings) -> Artifact:
    out = fresh_folder(work_dir(settings, STAGE) / "out")
    (out / "source.json").write_text(json.dumps(recipe.settings, indent=1) + "\n")
    facts: Facts = {}
    return commit(run_store(settings), recipe, out, facts)


class _Fetch:
    """The stage begins when bytes begin to move: until then the source may turn out to be here already."""

    def __init__(self, stage: ExitStack, settings: Settings) -> None:
        self.begun = False
        self._stage = stage
        self._settings = settings
        self._tell = bytes_progress(reporter(), STAGE)

    def begin(self) -> None:
        if not self.begun:
            self.begun = True
            self._stage.enter_context(running(STAGE, self._settings))

    def __call__(self, done: int, total: int) -> None:
        self.begin()
        self._tell(done, total)
