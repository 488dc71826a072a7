"""What all stages do: look in the store, else make the result in the run's folder, store it, and say so."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from nemotron_rl.config.settings import Settings
from nemotron_rl.store import Artifact, ArtifactStore, artifact_digest, open_store
from tasks.policy import cached
from tasks.progress import reporter
from tasks.timeline import timed

type Facts = dict[str, JsonValue]


@dataclass(frozen=True)
class Recipe:
    """What an artifact is made from. Equal recipes give equal artifacts, so the second one need not be made."""

    kind: str
    inputs: tuple[Artifact, ...]
    settings: dict[str, JsonValue]
    """All that its bytes depend on besides the inputs. `revision` is raised when a stage's code makes other bytes."""

    @property
    def digest(self) -> str:
        """Names the artifact."""
        return artifact_digest(self.kind, [artifact.digest for artifact in self.inputs], self.settings)


def run_store(settings: Settings) -> ArtifactStore:
    """The store of a run. Artifacts fetched from S3 are kept in the output folder, for later runs too."""
    return open_store(settings.store, settings.store_uri, settings.output_dir / "cache" / "artifacts")


def work_dir(settings: Settings, stage: str) -> Path:
    """The folder of one stage of a run: its requests, logs and, until they are stored, its results."""
    return settings.run_dir.absolute() / stage


def build(stage: str, settings: Settings, recipe: Recipe, make: Callable[[Path], Facts]) -> Artifact:
    """The artifact of a recipe, from the store if it is there.

    Args:
        stage: The stage's name in reports and in the run's folder.
        settings: The run.
        recipe: What the artifact is made from.
        make: Fills the given folder with the artifact's files and returns what it learned. The folder may be missing,
            or hold what an earlier try left there.
    """
    store = run_store(settings)
    if found := store.find(recipe.kind, recipe.digest):
        return from_store(stage, settings, found)
    with running(stage, settings):
        out = work_dir(settings, stage) / "out"
        facts = make(out)
        return commit(store, recipe, out, facts)


def commit(store: ArtifactStore, recipe: Recipe, out: Path, facts: Facts) -> Artifact:
    """Store the folder as the recipe's artifact, and remove it: the store has a copy."""
    artifact = store.commit(
        out,
        kind=recipe.kind,
        digest=recipe.digest,
        inputs=[source.digest for source in recipe.inputs],
        settings=recipe.settings,
        facts=facts,
    )
    shutil.rmtree(out)
    return artifact


@contextmanager
def running(stage: str, settings: Settings) -> Iterator[None]:
    """A stage at work: its folder is there, it is reported and timed."""
    work_dir(settings, stage).mkdir(parents=True, exist_ok=True)
    with reporter().stage(stage), timed(settings.run_dir, stage):
        yield


def fresh_folder(folder: Path) -> Path:
    """The folder, empty, whatever an earlier try left in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def from_store[T](stage: str, settings: Settings, value: T) -> T:
    """Hand on a result that did not have to be made, and say so."""
    settings.run_dir.mkdir(parents=True, exist_ok=True)
    with timed(settings.run_dir, stage, cached=True):
        reporter().cached(stage)
    return cached(value)
