"""Which trainers an SGLang engine can work with in this version, on their GPUs or beside them. Pure.

Not a rule of the settings: a preset for another split is right, and can be planned with, before it can be run.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from nemotron_rl.config.fields import flat
from nemotron_rl.config.nearest import divisors, nearest_number
from nemotron_rl.config.parallel import Broken
from nemotron_rl.config.problem import Problem, raise_problems
from nemotron_rl.config.settings import Settings


def check_colocation(settings: Settings) -> None:
    """Raise SettingsError when the engine cannot get the weights of a trainer that is split like this."""
    values = flat(settings)
    raise_problems([Problem(broken.key, broken.message, values[broken.key]) for broken in broken_colocation(settings)])


def broken_colocation(settings: Settings) -> Iterator[Broken]:
    """Every limit that does not hold."""
    if settings.rollout.engine != "sglang":
        return
    if settings.model.dtype != "bf16":
        yield Broken("model.dtype", "the sglang engine computes in bf16; use bf16", ("rollout.engine",))
    if settings.rollout.placement == "shared":
        yield from _broken_shared(settings)
    else:
        yield from _broken_separate(settings)


def _broken_separate(settings: Settings) -> Iterator[Broken]:
    """The ranks of an engine see each other's memory: they must be on one node."""
    ranks, per_node = settings.rollout.ranks_per_engine, settings.train_ranks // settings.cluster.nodes
    firsts = range(settings.parallel.world_size, settings.train_ranks, ranks)
    if any(first // per_node != (first + ranks - 1) // per_node for first in firsts):
        yield Broken(
            "rollout.sglang.gpus_per_engine",
            f"engines of {ranks} GPUs behind {settings.parallel.world_size} trainer ranks would lie across nodes of "
            f"{per_node}; use a number that divides both, such as {gcd(settings.parallel.world_size, per_node, ranks)}",
            ("parallel.world_size", "rollout.ranks", "cluster.nodes"),
        )


def _broken_shared(settings: Settings) -> Iterator[Broken]:
    for name in ("tp", "pp", "cp"):
        if getattr(settings.parallel, name) > 1:
            message = "the sglang engine shares ranks with ep and dp only in this version; use 1"
            yield Broken(f"parallel.{name}", message, ("rollout.engine",))
    ranks = settings.rollout.sglang.gpus_per_engine
    if settings.parallel.world_size % ranks:
        choice = nearest_number(ranks, divisors(settings.parallel.world_size))
        yield Broken(
            "rollout.sglang.gpus_per_engine",
            f"should divide parallel.world_size = {settings.parallel.world_size}; the nearest is {choice}",
            ("parallel.world_size",),
        )
    if settings.parallel.ep != ranks:
        yield Broken(
            "parallel.ep",
            f"should equal rollout.sglang.gpus_per_engine = {ranks}: a rank gives its experts to its own GPU's engine",
            ("rollout.sglang.gpus_per_engine",),
        )
