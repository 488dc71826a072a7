"""A memory plan as a table: what fills a GPU of each pipeline stage, and what would fit."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from nemotron_rl.planner.plan import MemoryPlan, StagePlan
from nemotron_rl.report import format as fmt
from nemotron_rl.report.summary import light_table

_ROWS = (
    ("weights", "weights"),
    ("gradients", "gradients, fp32"),
    ("optimizer", "optimizer"),
    ("runtime", "runtime (assumed)"),
    ("activations", "activations"),
    ("engine_weights", "engine: weights"),
    ("kv_cache", "engine: KV cache"),
    ("mamba_state", "engine: Mamba states"),
)


def plan_view(plan: MemoryPlan, gpu: str, advice: Sequence[str]) -> RenderableType:
    """The table, the verdict and the advice."""
    parallel = plan.parallel
    title = (
        f"{plan.source}, {parallel.world_size} × {gpu}: tp {parallel.tp}, pp {parallel.pp}, cp {parallel.cp}, "
        f"ep {parallel.ep}, etp {parallel.etp}, dp {parallel.dp}"
    )
    table = light_table("", "on each GPU of", *(f">stage {stage.stage}" for stage in plan.stages))
    table.add_row("parameters", *(fmt.count(stage.parameters) for stage in plan.stages))
    for name, label in _ROWS:
        table.add_row(label, *(fmt.size(getattr(stage, name)) for stage in plan.stages))
    table.add_row("while training", *(_judged(stage.training, plan.capacity) for stage in plan.stages))
    table.add_row("during rollout", *(_judged(stage.rollout, plan.capacity) for stage in plan.stages))
    requests = (
        f"{plan.tokens_per_micro_batch:,} tokens per pass; engines of {fmt.plural(plan.engine_gpus, 'GPU')}, "
        f"{plan.requests} requests of {plan.tokens_per_request:,} tokens at once"
    )
    return Group(Text(title, "bold"), table, Text(requests, "dim"), Text(""), *_verdict(plan, advice))


def _judged(nbytes: float, capacity: float) -> Text:
    return Text(fmt.size(nbytes), "bold green" if nbytes <= capacity else "bold red")


def _verdict(plan: MemoryPlan, advice: Sequence[str]) -> list[Text]:
    if plan.fits:
        worst = max(plan.stages, key=lambda stage: stage.peak)
        free = fmt.size(plan.capacity - worst.peak)
        return [Text(f"✓ fits into {fmt.size(plan.capacity)}; stage {worst.stage} has {free} left", "green")]
    lines = [Text(f"✗ {problem}", "red") for problem in problems(plan)]
    if advice:
        return [*lines, Text("What would fit:"), *(Text(f"  --set {' --set '.join(one.split())}") for one in advice)]
    return [*lines, Text("No split of this model on up to 8 times as many GPUs would fit; shorten the sequences.")]


def problems(plan: MemoryPlan) -> list[str]:
    """A line for each stage and phase that does not fit, with its largest part."""
    lines = []
    for stage in plan.stages:
        for phase, nbytes, parts in (
            ("training", stage.training, ("weights", "gradients", "optimizer", "activations")),
            ("rollout", stage.rollout, ("weights", "gradients", "optimizer", "engine_weights", "kv_cache")),
        ):
            if nbytes > plan.capacity:
                over = f"needs {fmt.size(nbytes)} of {fmt.size(plan.capacity)}"
                lines.append(f"stage {stage.stage}, {phase}: {over}; the most is {_largest(stage, parts)}")
    return lines


def _largest(stage: StagePlan, parts: Sequence[str]) -> str:
    name = max(parts, key=lambda part: getattr(stage, part))
    return f"{dict(_ROWS)[name]}, {fmt.size(getattr(stage, name))}"
