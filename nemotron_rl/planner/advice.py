"""What would fit when a plan does not: the smallest changes of settings first, then other splits, then more GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from nemotron_rl.config.geometry import Geometry
from nemotron_rl.config.model import ParallelSettings
from nemotron_rl.config.nearest import divisors
from nemotron_rl.config.parallel import broken_parallel, broken_pipeline, broken_world
from nemotron_rl.config.settings import Settings
from nemotron_rl.planner.plan import MemoryPlan, Planner

TIMES_GPUS = (1, 2, 4, 8)
"""More GPUs than the settings have, as a multiple."""


def suggestions(planner: Planner, settings: Settings, geometry: Geometry) -> list[str]:
    """Changes, each of which alone makes the plan fit, as arguments of `--set`; an empty list if none was found."""
    found = [text for text, changed in _changes(settings) if planner.plan(changed).fits]
    split = _split(planner, settings, geometry)
    if not found and split is None:
        text, changed = _with(settings, {"distributed": True, "moments": "bf16"})
        other = _split(planner, changed, geometry)
        split = f"{text} {other}" if other else None
    return [*found, *([split] if split else [])]


def _changes(settings: Settings) -> Iterator[tuple[str, Settings]]:
    """One or two settings that cost speed, not GPUs."""
    optimizer = settings.train.optimizer
    if not optimizer.distributed:
        yield _with(settings, {"distributed": True})
    if optimizer.moments != "bf16":
        yield _with(settings, {"distributed": True, "moments": "bf16"})
    if optimizer.cpu_offload < 1:
        yield _with(settings, {"distributed": True, "cpu_offload": 1.0})


def _with(settings: Settings, optimizer: dict[str, object]) -> tuple[str, Settings]:
    changed = settings.train.optimizer.model_copy(update=optimizer)
    train = settings.train.model_copy(update={"optimizer": changed})
    new = {key: value for key, value in optimizer.items() if getattr(settings.train.optimizer, key) != value}
    text = " ".join(f"train.optimizer.{key}={str(value).lower()}" for key, value in new.items())
    return text, settings.model_copy(update={"train": train})


def _split(planner: Planner, settings: Settings, geometry: Geometry) -> str | None:
    """Another split that fits: on as few GPUs as can be, and of these the one that changes least."""
    for times in TIMES_GPUS:
        fitting = [
            parallel
            for parallel in _candidates(settings.parallel, times, geometry, len(planner.sizes.layers))
            if _plan(planner, settings, parallel).fits
        ]
        if fitting:
            return _named(min(fitting, key=lambda split: _distance(split, settings.parallel)), settings.parallel)
    return None


def _candidates(given: ParallelSettings, times: int, geometry: Geometry, layers: int) -> Iterator[ParallelSettings]:
    for tp in divisors(geometry.n_groups):
        for pp in divisors(layers):
            for ep in divisors(geometry.n_experts) if geometry.n_experts else [1]:
                new = {"world_size": given.world_size * times, "tp": tp, "pp": pp, "ep": ep}
                split = given.model_copy(update=new)
                broken = [
                    *broken_world(split),
                    *broken_parallel(split, **vars(geometry)),
                    *broken_pipeline(split, layers),
                ]
                if not broken:
                    yield split


def _plan(planner: Planner, settings: Settings, parallel: ParallelSettings) -> MemoryPlan:
    return planner.plan(settings.model_copy(update={"parallel": parallel}))


def _distance(split: ParallelSettings, given: ParallelSettings) -> tuple[int, int, int]:
    """Number of sizes that differ, then how much model parallelism there is, which costs speed."""
    sizes = [(split.tp, given.tp), (split.pp, given.pp), (split.ep, given.ep)]
    return sum(new != old for new, old in sizes), split.tp * split.pp, split.ep


def _named(split: ParallelSettings, given: ParallelSettings) -> str:
    new = {key: value for key, value in split.model_dump().items() if value != getattr(given, key)}
    return " ".join(f"parallel.{key}={value}" for key, value in new.items())
