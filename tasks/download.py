"""Task: the source checkpoint as a local folder. Its bytes stay where they are; the store gets a record of them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.tasks import exponential_backoff

from nemotron_rl.checkpoint.source import open_source, source_name
from nemotron_rl.config.base import Frozen
from nemotron_rl.config.settings import Settings
from nemotron_rl.store import Artifact
from tasks.policy import DAY, may_pass
from tasks.progress import reporter
from tasks.stage import Facts, Recipe, build, fresh_folder, from_store, run_store

STAGE = "download"


class Source(Frozen):
    """The checkpoint that a run starts from."""

    artifact: Artifact
    """Its record in the store: where it comes from, and a fingerprint of its files."""
    folder: Path
    """Its files, on this machine."""


@task(
    name=STAGE,
    retries=3,
    retry_delay_seconds=exponential_backoff(10),
    retry_jitter_factor=0.5,
    retry_condition_fn=may_pass,
    timeout_seconds=DAY,
    tags=["network"],
    cache_policy=NO_CACHE,
    persist_result=True,
)
def download(settings: Settings) -> Source:
    """Fetch or make the source, once per machine."""
    source, fetched = settings.source, _Fetched()
    folder = open_source(
        source.uri,
        settings.output_dir.absolute() / "cache" / "sources",
        seed=source.seed,
        progress=fetched,
        endpoint=settings.store.endpoint,
        region=settings.store.region,
    )
    origin: Facts = {"source": source_name(source.uri), "fingerprint": fingerprint(source.uri, folder)}
    recipe = Recipe("source", (), origin)

    def record(out: Path) -> Facts:
        (fresh_folder(out) / "source.json").write_text(json.dumps(origin, indent=1) + "\n")
        return {}

    known = run_store(settings).find(recipe.kind, recipe.digest)
    if known and not fetched.any:
        return from_store(STAGE, settings, Source(artifact=known, folder=folder))
    return Source(artifact=known or build(STAGE, settings, recipe, record), folder=folder)


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


class _Fetched:
    """Passes progress on, and remembers whether there was any."""

    def __init__(self) -> None:
        self.any = False

    def __call__(self, done: int, total: int) -> None:
        self.any = True
        reporter().advance(STAGE, done, total)
