"""Which checkpoint a run goes on from. Files and manifests only; no torch."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path

from nemotron_rl.config.settings import Settings
from nemotron_rl.errors import InputError
from nemotron_rl.megatron.checkpointing.record import Record, check_resumable
from nemotron_rl.store.manifest import Manifest
from nemotron_rl.store.steps import StepStore

FOLDER = "checkpoints"
"""Folder of a run's checkpoints, in the run's own."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Choice:
    """A checkpoint to go on from."""

    store: StepStore
    manifest: Manifest
    record: Record


def choose(own: StepStore, settings: Settings, inputs: tuple[str, ...]) -> Choice | None:
    """The checkpoint that `train.resume` means, None for step 0; only under the lock of `own`.

    What was left half-written is deleted, and so are complete checkpoints that lie beyond the chosen start.

    Raises:
        InputError: the wanted checkpoint does not exist, or was made with other settings.
        StoreError: it is broken.
    """
    resume = settings.train.resume
    if half := own.sweep():
        _log.info("deleted checkpoints that were never complete: %s", ", ".join(map(str, half)))
    store, step = _wanted(own, resume)
    choice = None if step is None else _checked(store, step, settings, inputs)
    if resume != "auto":
        for later in [s for s in own.complete() if store is not own or step is None or s > step]:
            _log.info("deleting checkpoint %d, which train.resume = %s leaves behind", later, resume)
            own.remove(later)
    if choice is None:
        _log.info("training starts at step 0; there is no complete checkpoint to resume in %s", own.root)
    else:
        _log.info("training resumes after step %d from %s", choice.record.step, store.root)
    return choice


def check_resume(run_dir: Path, settings: Settings) -> None:
    """The checkpoint that `train.resume` means is there, as far as manifests tell; changes nothing and needs no lock.

    Raises:
        InputError: it is not.
        StoreError: its manifest is broken.
    """
    _wanted(StepStore(run_dir / FOLDER), settings.train.resume)


def before(run_dir: Path, step: int, settings: Settings) -> Choice | None:
    """The newest complete checkpoint of a run that has seen at most `step` updates; None for the starting weights."""
    store = StepStore(run_dir / FOLDER)
    found = [one for one in store.complete() if one <= step]
    return _checked(store, found[-1], settings, ()) if found else None


def _checked(store: StepStore, step: int, settings: Settings, inputs: tuple[str, ...]) -> Choice:
    manifest, where = store.manifest(step), store.root / f"step_{step}"
    record = Record.of(manifest, where)
    check_resumable(manifest, settings, inputs, where)
    if step > settings.train.steps:
        raise InputError(f"{where} is beyond train.steps = {settings.train.steps}; raise it, or resume an earlier step")
    return Choice(store, manifest, record)


def _wanted(own: StepStore, resume: int | str) -> tuple[StepStore, int | None]:
    """Where and which step; None for step 0."""
    if resume == "none":
        return own, None
    if resume == "auto":
        return own, max(own.complete(), default=None)
    store, step = (own, resume) if isinstance(resume, int) else _located(Path(resume))
    # A job that is started again with the same settings goes on from its own checkpoints.
    mine = [s for s in own.complete() if Record.of(own.manifest(s), own.root).resume == str(resume)]
    if mine and (store is not own or max(mine) > step):
        return own, max(mine)
    store.manifest(step)
    return store, step


def _located(path: Path) -> tuple[StepStore, int]:
    """The store and step of `.../checkpoints/step_N`, or the newest of `.../checkpoints` or of a run's folder."""
    if named := re.fullmatch(r"step_(\d+)", path.name):
        return StepStore(path.parent), int(named[1])
    store = StepStore(path / FOLDER if (path / FOLDER).is_dir() else path)
    if not (steps := store.complete()):
        what = "there is no complete checkpoint" if path.exists() else "it does not exist"
        raise InputError(
            f"train.resume = {path}: {what}\n"
            f"  Give a run's folder, its {FOLDER} or one step_N in that, or none to start from step 0."
        )
    return store, steps[-1]
