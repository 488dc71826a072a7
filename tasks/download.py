"""Task: the source checkpoint as a local folder. Its bytes stay where they are; the store gets a record of them."""

from __future__ import annotations

import hashlib
import json
from contextlib import ExitStack
from pathlib import Path

from nemotron_rl.checkpoint.source import open_source, source_name
from nemotron_rl.config.base import Frozen
from nemotron_rl.config.settings import Settings
from nemotron_rl.store import Artifact
from tasks.policy import DAY, stage_task
from tasks.progress import reporter
from tasks.stage import Facts, Recipe, commit, fresh_folder, from_store, run_store, running, work_dir

STAGE = "download"


class Source(Frozen):
    """The checkpoint that a run starts from."""

    artifact: Artifact
    """Its record in the store: where it comes from, and a fingerprint of its files."""
    folder: Path
    """Its files, on this machine."""


@stage_task(STAGE, retries=3, delay_s=10, timeout_s=DAY, tags=("network",))
def download(settings: Settings) -> Source:
    """Fetch or make the source, once per machine."""
    with ExitStack() as stage:
        fetch = _Fetch(stage, settings)
        folder = open_source(
            settings.source.uri,
            settings.output_dir.absolute() / "cache" / "sources",
            seed=settings.source.seed,
            progress=fetch,
            endpoint=settings.store.endpoint,
            region=settings.store.region,
        )
        recipe = _recipe(settings.source.uri, folder)
        known = run_store(settings).find(recipe.kind, recipe.digest)
        if known and not fetch.begun:
            return from_store(STAGE, settings, Source(artifact=known, folder=folder))
        fetch.begin()
        return Source(artifact=known or _record(recipe, settings), folder=folder)


def fingerprint(uri: str, folder: Path) -> str:
    """Changes when the source's files do. Their bytes are not read: there may be a terabyte of them.

    What was fetched or made lies in a folder that is named by what it was made from (a commit, a listing with ETags, a
    seed). A folder of the user's own is known by its place and by its files' names, sizes and times.
    """
    if "://" in uri and not uri.startswith("file://"):
        return folder.name
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    listing = [(str(path.relative_to(folder)), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return hashlib.sha256(repr((str(folder.absolute()), listing)).encode()).hexdigest()[:32]


def _recipe(uri: str, folder: Path) -> Recipe:
    return Recipe("source", (), {"source": source_name(uri), "fingerprint": fingerprint(uri, folder)})


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

    def begin(self) -> None:
        if not self.begun:
            self.begun = True
            self._stage.enter_context(running(STAGE, self._settings))

    def __call__(self, done: int, total: int) -> None:
        self.begin()
        reporter().advance(STAGE, done, total)
