"""What a checkpoint says about itself, and whether a run may go on from it. Pure; no torch, no files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from nemotron_rl.config.base import Frozen
from nemotron_rl.config.fields import flat, leaves, nested
from nemotron_rl.config.model import ParallelSettings
from nemotron_rl.config.settings import Settings
from nemotron_rl.config.typed import type_problems
from nemotron_rl.errors import InputError, StoreError
from nemotron_rl.store.manifest import Manifest

VERSION = 1

FREE = (
    "preset",
    "run_id",
    "output_dir",
    "store",
    "cluster",
    "gates",
    "evaluate",
    "parallel",
    "source",
    "slice",
    "convert",
    "warmup",
    "data.eval_file",
    "data.eval_prompts",
    "model.backend",
    "model.threads",
    "rollout.placement",
    "rollout.ranks",
    "train.micro_batch_size",
    "train.checkpoint",
    "train.resume",
    "train.dump_details",
)
"""Settings, or whole sections, that may change between a checkpoint and the run that resumes it.

Sources, slices and warm-ups made the inputs, which are compared by themselves. Other ranks, threads and micro-batches
compute the same steps up to rounding. `train.steps` may change while the learning rate does not depend on it.
"""


class Record(Frozen):
    """The facts of a checkpoint's manifest."""

    version: int = VERSION
    step: int
    """RL steps that the state has seen, each of `train.updates_per_step` optimizer steps; also the engine's weight
    version, and the seed of the next step's samples."""
    sampler_position: int
    """Prompts drawn so far."""
    resume: str
    """`train.resume` of the run that wrote it, so that a job that is started again knows its own checkpoints."""
    parallel: ParallelSettings
    """The split over ranks that it was written at. Random states are restored only at this one."""

    @classmethod
    def of(cls, manifest: Manifest, where: object) -> Record:
        """The record in a manifest.

        Raises:
            StoreError: it was written by a version that this one does not know.
        """
        if manifest.facts.get("version") != VERSION:
            raise StoreError(
                f"{where} has format {manifest.facts.get('version')}, this version reads {VERSION}; "
                "resume it with the version that wrote it"
            )
        return cls.model_validate(manifest.facts)


def trajectory(settings: Settings) -> dict[str, JsonValue]:
    """The settings by dotted name that decide what training computes, as JSON values."""
    chosen = flat(settings)
    if settings.train.optimizer.decay == "constant":
        del chosen["train.steps"]
    plain = settings.model_dump(mode="json")
    return {path: _at(plain, path) for path in chosen if not _is_free(path)}


def check_resumable(manifest: Manifest, settings: Settings, inputs: tuple[str, ...], where: object) -> None:
    """Whether a run with these settings and inputs may go on from a checkpoint.

    A setting that the version which wrote it did not have counts as its default: what is new must change nothing then.

    Raises:
        InputError: naming every setting that differs, or the input.
    """
    now, then = trajectory(settings), _read_today(manifest.settings, settings)
    changed = [path for path in sorted(now.keys() | then.keys()) if now.get(path) != then.get(path)]
    if changed:
        lines = [f"{path} = {then.get(path)!r} there, {_here(path, now)}" for path in changed]
        raise InputError("\n  ".join([f"{where} was made with other settings:", *lines, _CHOICES]))
    others = ("another starting model", "other prompts")
    differing = [other for other, a, b in zip(others, inputs, manifest.inputs, strict=False) if a != b]
    if differing:
        raise InputError(f"{where} was trained from {' and '.join(differing)}\n  {_CHOICES}")


def _read_today(saved: Mapping[str, JsonValue], settings: Settings) -> dict[str, JsonValue]:
    """A saved trajectory completed with defaults; what this version does not accept stays as it was saved."""
    own = settings.model_dump(mode="json")
    not_saved = {path: _at(own, path) for path in leaves() if _is_free(path) or path == "train.steps"}
    known = {path: value for path, value in saved.items() if path in leaves()}
    refused = {problem.key for problem in type_problems({path: (v, "") for path, v in (not_saved | known).items()})}
    accepted = not_saved | {path: value for path, value in known.items() if path not in refused}
    unread = {path: value for path, value in saved.items() if path not in accepted}
    return trajectory(Settings.model_validate(nested(accepted))) | unread


def _here(path: str, now: Mapping[str, JsonValue]) -> str:
    return f"{now.get(path)!r} in this run" if path in leaves() else "which this version does not know"


_CHOICES = "Use the old settings, another --run-id, or --set train.resume=none to start again from step 0."


def _is_free(path: str) -> bool:
    return any(path == free or path.startswith(f"{free}.") for free in FREE)


def _at(tree: Mapping[str, Any], path: str) -> JsonValue:
    node: Any = tree
    for name in path.split("."):
        node = node[name]
    value: JsonValue = node
    return value
