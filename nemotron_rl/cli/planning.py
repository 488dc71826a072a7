"""The command that says, before anything is started, what fills each GPU of a run."""

from __future__ import annotations

import json as json_
import sys
from typing import Annotated

import typer

from nemotron_rl.cli import options
from nemotron_rl.cli.options import ConfigFile, Json, Preset, Set, Source


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(plan)


def plan(
    preset: Preset = None,
    config: ConfigFile = None,
    sets: Set = None,
    source: Source = None,
    gpu: Annotated[str, typer.Option(help="GPU type: a100-40gb, a100-80gb, h100, h200 or b200.")] = "h200",
    gpu_memory: Annotated[
        int | None, typer.Option(parser=options.parse_size, metavar="SIZE", help="Memory of another GPU.")
    ] = None,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Longest prompt.")] = 1024,
    engine_gpus: Annotated[
        int | None, typer.Option(min=1, help="GPUs of one rollout engine; by default the larger of tp and ep.")
    ] = None,
    json: Json = False,
) -> None:
    """Estimate the memory that a run needs on each GPU, and say what would fit. Ends with 1 when it does not fit.

    Parameters are exact; activations, caches and the runtime are estimates for fused kernels without recomputation.
    """
    from nemotron_rl.errors import InputError
    from nemotron_rl.planner.advice import suggestions
    from nemotron_rl.planner.gpus import gpu_bytes
    from nemotron_rl.planner.plan import Assumptions, Planner
    from nemotron_rl.preflight import run_config, split_limits
    from nemotron_rl.report.console import open_console
    from nemotron_rl.report.plan_view import plan_view, problems

    settings = options.load_options(preset, config, sets, {"--source": source}).settings
    capacity = gpu_memory or gpu_bytes(gpu)
    if engine_gpus and settings.parallel.world_size % engine_gpus:
        raise InputError(f"engines of {engine_gpus} GPUs do not divide the {settings.parallel.world_size} of the run")
    model = run_config(settings)
    assumptions = Assumptions(prompt_tokens=prompt_tokens, engine_gpus=engine_gpus)
    planner = Planner(model, settings.source.uri, capacity, assumptions)
    made = planner.plan(settings)
    advice = [] if made.fits else suggestions(planner, settings, split_limits(model))
    if json:
        extra = {"fits": made.fits, "problems": problems(made), "would_fit": advice}
        typer.echo(json_.dumps(made.model_dump(mode="json") | extra, indent=1))
    else:
        name = "GPU" if gpu_memory else gpu.upper()
        open_console(sys.stdout).print(plan_view(made, name, advice))
    if not made.fits:
        raise typer.Exit(1)
