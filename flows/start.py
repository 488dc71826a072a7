"""How a flow run gets its settings, and how its jobs end with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect.client.schemas.objects import FlowRun, State
from prefect.context import FlowRunContext
from prefect.flows import Flow
from prefect.logging import get_logger

from nemotron_rl.config.load import load_settings
from nemotron_rl.config.settings import Settings
from tasks.job import cancel_jobs


def deployed_settings(
    preset: str, config: str | None, overrides: Mapping[str, Any] | None, run_id: str | None, output_dir: str | None
) -> Settings:
    """The settings of a deployment's run: preset, file, the worker's environment, then the run's parameters."""
    context = FlowRunContext.get()
    flow_run = context.flow_run if context else None
    return _load(preset, config, overrides, run_id or (name_of(flow_run, preset) if flow_run else None), output_dir)


def name_of(flow_run: FlowRun, preset: str) -> str:
    """A run id that stays the same when the flow run is tried again: preset, time of creation and Prefect's id."""
    created = flow_run.created or flow_run.expected_start_time
    return f"{preset}-{created:%Y%m%d-%H%M%S}-{flow_run.id.hex[:6]}" if created else f"{preset}-{flow_run.id.hex[:12]}"


def end_jobs(flow: Flow[..., Any], flow_run: FlowRun, state: State[Any]) -> None:
    """Cancel what the flow run left running; Prefect calls this after a cancellation and after a crash.

    A flow that can still act cancels its job itself. This is for the one whose process was killed.
    """
    cancelled = cancel_jobs(settings_of(flow_run))
    get_logger("nemotron_rl").info("%s: cancelled %s", flow_run.name, ", ".join(cancelled) or "no job")


def settings_of(flow_run: FlowRun) -> Settings:
    """The settings that the flow run works with, read from its parameters."""
    given = flow_run.parameters
    if "settings" in given:
        return Settings.model_validate(given["settings"])
    preset = given["preset"]
    return _load(
        preset,
        given.get("config"),
        given.get("overrides"),
        given.get("run_id") or name_of(flow_run, preset),
        given.get("output_dir"),
    )


def _load(
    preset: str, config: str | None, overrides: Mapping[str, Any] | None, run_id: str | None, output_dir: str | None
) -> Settings:
    named = {"run_id": run_id, "output_dir": output_dir}
    given = {**(overrides or {}), **{key: value for key, value in named.items() if value is not None}}
    return load_settings(preset, config_file=Path(config) if config else None, overrides=given, environ=os.environ)
