"""Training alone: from the source to a trained checkpoint, without evaluation and gates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow

from flows.start import deployed_settings, end_jobs
from nemotron_rl.config.settings import Settings
from nemotron_rl.preflight import preflight
from tasks.convert import convert
from tasks.download import download
from tasks.prompts import make_prompts
from tasks.publish import publish_training
from tasks.slice import slice_layers
from tasks.train import train as train_task
from tasks.warmup import warmup


@flow(name="train", flow_run_name="{settings.run_id}", on_cancellation=[end_jobs], on_crashed=[end_jobs])
def train(settings: Settings) -> Path:
    """Slice the source if asked to, train, and return the folder of the trained checkpoint."""
    preflight(settings)
    source = download(settings)
    prompts = make_prompts(settings)
    sliced = slice_layers(source, settings)
    start = convert(sliced, settings) if settings.convert.enabled else sliced
    if settings.warmup.steps:
        start = warmup(start, prompts, settings)
    trained = train_task(start, prompts, settings)
    return publish_training(trained, settings)


@flow(name="train", on_cancellation=[end_jobs], on_crashed=[end_jobs])
def deployed(
    preset: str = "tiny",
    config: str | None = None,
    overrides: dict[str, Any] | None = None,
    run_id: str | None = None,
    output_dir: str | None = None,
) -> Path:
    """The same flow with parameters that a deployment can be given by hand.

    Args:
        preset: Settings to start from, such as `tiny` or `ultra-4layer`.
        config: YAML file of settings, on the worker's machine.
        overrides: Settings by dotted key, such as `{"train.steps": 4, "cluster.kind": "slurm"}`.
        run_id: Name of the run; by default made of the preset, the time and the flow run's id.
        output_dir: Folder that holds runs; by default `runs` in the repository.
    """
    return train.fn(deployed_settings(preset, config, overrides, run_id, output_dir))
