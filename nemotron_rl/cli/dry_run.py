"""`--dry-run`: the resolved settings with where each came from, and the stages that would run."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from nemotron_rl.config.fields import flat
from nemotron_rl.config.load import Loaded
from nemotron_rl.config.routing import replay_text
from nemotron_rl.config.settings import Settings
from nemotron_rl.preflight import known_moe_layers
from nemotron_rl.report.format import plural


def print_plan(command: str, loaded: Loaded) -> None:
    """Print settings, what `auto` comes to, and stages to stdout.

    The whole output is a YAML file that `--config` accepts.
    """
    stages = [f"# {name:<9} {what}" for name, what in planned_stages(command, loaded.settings)]
    decided = f"# routing replay: {replay_text(loaded.settings, known_moe_layers(loaded.settings))}"
    intent = f"# {command} would run, skipping what the store already has:"
    typer.echo("\n".join([settings_yaml(loaded), decided, intent, *stages]))


def planned_stages(command: str, settings: Settings) -> list[tuple[str, str]]:
    """(stage, what it would do) in order."""
    parallel, cluster = settings.parallel, settings.cluster
    layers = "all layers" if settings.slice.layers is None else f"layers {','.join(map(str, settings.slice.layers))}"
    split = f"tp {parallel.tp}, pp {parallel.pp}, ep {parallel.ep}, dp {parallel.dp}"
    ranks = f"{plural(parallel.world_size, 'rank')} ({split})"
    beside = f" beside {plural(settings.rollout.ranks, 'rollout rank')}" if settings.rollout.ranks else ""
    where = f"{cluster.kind}, {plural(cluster.nodes, 'node')}"
    samples = settings.train.prompts_per_step * settings.rollout.samples_per_prompt
    held_out = settings.data.eval_file or f"{settings.data.eval_prompts} generated prompts"
    stages = [
        ("download", settings.source.uri),
        ("prompts", f"{settings.data.train_file or 'generated arithmetic'}"),
        ("slice", f"{layers}, MTP head: {settings.slice.mtp}"),
        *([("convert", f"to torch_dist for {ranks}")] if settings.convert.enabled else []),
        *([("warmup", f"{settings.warmup.steps} supervised steps")] if settings.warmup.steps else []),
        ("train", f"{plural(settings.train.steps, 'step')} of {samples} samples on {ranks}{beside}; {where}"),
    ]
    if command == "validate":
        stages += [("evaluate", f"base and trained checkpoint on {held_out}"), ("gate", "the bounds in gates, above")]
    return [*stages, ("publish", f"to {settings.store_uri} and {settings.run_dir}")]


def settings_yaml(loaded: Loaded) -> str:
    """The settings as YAML, each with its origin as a comment."""
    lines: list[str] = []
    opened: list[str] = []
    for path, value in flat(loaded.settings).items():
        *parents, name = path.split(".")
        for depth, parent in enumerate(parents):
            if opened[: depth + 1] != parents[: depth + 1]:
                lines.append(f"{'  ' * depth}{parent}:")
                opened = parents[: depth + 1]
        text = f"{'  ' * len(parents)}{name}: {_scalar(value)}"
        lines.append(f"{text:<52} # {loaded.origins[path]}")
        opened = parents
    return "\n".join(lines) + "\n"


def _scalar(value: object) -> str:
    """A value as YAML flow text; JSON is YAML."""
    return json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
