"""The nightly check: is the whole stack still sound, from the source's bytes to a trained checkpoint?"""

from __future__ import annotations

from typing import Any

from prefect import flow

from flows.start import deployed_settings, end_jobs
from nemotron_rl.config.settings import Settings
from nemotron_rl.preflight import preflight
from nemotron_rl.report.run_report import RunReport
from tasks.convert import convert
from tasks.download import download
from tasks.evaluate import evaluate
from tasks.gate import gate
from tasks.prompts import make_prompts
from tasks.publish import Results, publish
from tasks.slice import slice_layers
from tasks.train import train
from tasks.warmup import warmup


@flow(name="validate", flow_run_name="{settings.run_id}", on_cancellation=[end_jobs], on_crashed=[end_jobs])
def validate(settings: Settings) -> RunReport:
    """Slice the source, train a few steps, evaluate, gate. What was made before from the same inputs is not made again.

    Raises:
        GateFailed: Everything ran and is published, and at least one gate did not hold.
    """
    preflight(settings)
    source = download(settings)
    prompts = make_prompts(settings)
    sliced = slice_layers(source, settings)
    converted = convert(sliced, settings) if settings.convert.enabled else None
    warmed_up = warmup(converted or sliced, prompts, settings) if settings.warmup.steps else None
    trained = train(warmed_up or converted or sliced, prompts, settings)
    scores = evaluate(warmed_up or sliced, trained, prompts, settings)
    verdict = gate(trained, scores, settings)
    results = Results(
        prompts=prompts, sliced=sliced, converted=converted, warmed_up=warmed_up, trained=trained, scores=scores
    )
    report = publish(verdict, results, settings)
    verdict.raise_if_failed()
    return report


@flow(name="validate", on_cancellation=[end_jobs], on_crashed=[end_jobs])
def nightly(
    preset: str = "ultra-4layer",
    config: str | None = None,
    overrides: dict[str, Any] | None = None,
    run_id: str | None = None,
    output_dir: str | None = None,
) -> RunReport:
    """The same flow with parameters that a deployment can be given by hand.

    Args:
        preset: Settings to start from, such as `tiny` or `ultra-4layer`.
        config: YAML file of settings, on the worker's machine.
        overrides: Settings by dotted key, such as `{"train.steps": 4, "cluster.kind": "slurm"}`.
        run_id: Name of the run; by default made of the preset, the time and the flow run's id.
        output_dir: Folder that holds runs; by default `runs` in the repository.
    """
    return validate.fn(deployed_settings(preset, config, overrides, run_id, output_dir))
