"""What Megatron allows a Nemotron-H model to be split into. Pure; the job calls it with the checkpoint's own sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nemotron_rl.config.model import ParallelSettings
from nemotron_rl.config.nearest import divisors, nearest_multiple, nearest_number, one_of
from nemotron_rl.config.problem import Problem, raise_problems


@dataclass(frozen=True)
class Broken:
    """A rule that does not hold."""

    key: str
    """The setting that is easiest to change."""
    message: str
    """What is wrong, and the nearest valid choice."""
    involved: tuple[str, ...] = ()
    """Other settings that the rule looked at."""


def check_parallel(
    parallel: ParallelSettings,
    *,
    n_layers: int,
    n_groups: int,
    n_heads: int,
    n_kv_heads: int,
    n_experts: int,
    n_mamba_heads: int,
    expert_width: int,
) -> None:
    """Raise SettingsError when a model of these sizes cannot be split like this.

    Args:
        parallel: The split.
        n_layers: Layers that are trained; a pipeline stage holds equally many.
        n_groups: Mamba2 groups; a tensor-parallel rank holds whole groups.
        n_heads: Attention query heads.
        n_kv_heads: Attention key/value heads; they are replicated when there are more ranks than heads.
        n_experts: Routed experts, 0 for a dense model.
        n_mamba_heads: Mamba2 heads; context-parallel ranks share those of a tensor-parallel rank.
        expert_width: Inner width of a routed expert, 0 for a dense model; expert tensor parallelism splits it.
    """
    broken = [
        *broken_pipeline(parallel, n_layers),
        *broken_parallel(
            parallel,
            n_groups=n_groups,
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            n_experts=n_experts,
            n_mamba_heads=n_mamba_heads,
            expert_width=expert_width,
        ),
    ]
    values = parallel.model_dump()
    raise_problems([Problem(rule.key, rule.message, values[rule.key.split(".")[1]]) for rule in broken])


def broken_parallel(
    parallel: ParallelSettings,
    *,
    n_groups: int,
    n_heads: int,
    n_kv_heads: int,
    n_experts: int,
    n_mamba_heads: int,
    expert_width: int,
) -> Iterator[Broken]:
    """Every limit of the model that the split does not respect."""
    tp = parallel.tp
    allowed = [size for size in divisors(n_groups) if n_heads % size == 0 and _kv_fits(n_kv_heads, size)]
    if tp not in allowed:
        sizes = f"{n_groups} Mamba groups, {n_heads} attention heads and {n_kv_heads} key/value heads"
        yield Broken(
            "parallel.tp",
            f"does not divide the model's {sizes}; use {one_of(allowed)} (nearest: {nearest_number(tp, allowed)})",
        )
    else:
        yield from _broken_context(parallel, n_groups // tp, n_mamba_heads // tp)
    yield from _broken_experts(parallel, n_experts, expert_width)


def _broken_context(parallel: ParallelSettings, groups: int, heads: int) -> Iterator[Broken]:
    """Between conv and scan a Mamba layer has whole sequences and a part of the heads: it needs heads for all ranks."""
    allowed = [size for size in divisors(heads) if groups % size == 0 or size % groups == 0]
    if parallel.cp not in allowed:
        yield Broken(
            "parallel.cp",
            f"cannot share out the {heads} Mamba heads in {groups} groups of a tensor-parallel rank; "
            f"use {one_of(allowed)} (nearest: {nearest_number(parallel.cp, allowed)})",
            ("parallel.tp",),
        )


def _broken_experts(parallel: ParallelSettings, n_experts: int, expert_width: int) -> Iterator[Broken]:
    ep, etp = parallel.ep, parallel.etp
    for key, size in (("parallel.ep", ep), ("parallel.etp", etp)):
        if n_experts == 0 and size > 1:
            yield Broken(key, "the model has no experts to split; use 1")
    if n_experts and n_experts % ep:
        choice = nearest_number(ep, divisors(n_experts))
        yield Broken("parallel.ep", f"does not divide the model's {n_experts} experts; the nearest is {choice}")
    # Ranks that share an expert gather their tokens, of which they must hold equally many: those of a tensor-parallel
    # group do, data-parallel ranks do not.
    allowed = [size for size in divisors(parallel.tp) if expert_width % size == 0]
    if n_experts and etp not in allowed:
        yield Broken(
            "parallel.etp",
            f"should divide parallel.tp = {parallel.tp} and an expert's width of {expert_width}; "
            f"the nearest is {nearest_number(etp, allowed)}",
            ("parallel.tp",),
        )


def broken_pipeline(parallel: ParallelSettings, n_layers: int) -> Iterator[Broken]:
    """Whether the layers spread evenly over pipeline stages."""
    if n_layers % parallel.pp:
        choice = nearest_number(parallel.pp, divisors(n_layers))
        yield Broken("parallel.pp", f"does not divide the {n_layers} layers that are trained; the nearest is {choice}")


def broken_world(parallel: ParallelSettings) -> Iterator[Broken]:
    """Whether the sizes multiply up to the world size, for any model."""
    world = parallel.world_size
    dense = parallel.tp * parallel.pp * parallel.cp
    if world % dense:
        yield Broken(
            "parallel.world_size",
            f"should be a multiple of tp x pp x cp = {parallel.tp} x {parallel.pp} x {parallel.cp} = {dense}; "
            f"the nearest is {nearest_multiple(world, dense)}",
            ("parallel.tp", "parallel.pp", "parallel.cp"),
        )
    expert = parallel.ep * parallel.etp * parallel.pp
    if world % expert:
        allowed = [size for size in divisors(world) if world % (size * parallel.etp * parallel.pp) == 0]
        hint = f"the nearest ep is {nearest_number(parallel.ep, allowed)}" if allowed else "use a larger world_size"
        yield Broken(
            "parallel.ep",
            f"ep x etp x pp = {parallel.ep} x {parallel.etp} x {parallel.pp} = {expert} "
            f"should divide world_size = {world}; {hint}",
            ("parallel.world_size", "parallel.etp", "parallel.pp"),
        )


def _kv_fits(n_kv_heads: int, tp: int) -> bool:
    return n_kv_heads % tp == 0 or tp % n_kv_heads == 0
