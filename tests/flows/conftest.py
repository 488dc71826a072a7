"""Runs with stand-in jobs, and a Prefect of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nemotron_rl.config.load import load_settings
from nemotron_rl.config.settings import Settings
from tasks.job import StageJob

type MakeSettings = Callable[..., Settings]
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def stand_in_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages start the jobs of tests/flows/stand_in, as plain processes because importing torchrun takes seconds."""
    spec = StageJob._spec
    monkeypatch.setattr(StageJob, "_spec", lambda job: replace(spec(job), distributed=False))
    monkeypatch.setattr("tasks.job.JOBS", "tests.flows.stand_in")
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))


@pytest.fixture
def make_settings(tmp_path: Path) -> MakeSettings:
    """Settings of a small, quick run below tmp_path, some of them changed by dotted key."""

    def make(run_id: str = "run", **changes: object) -> Settings:
        quick = {"output_dir": str(tmp_path / "runs"), "run_id": run_id, "cluster.poll_seconds": 0.05}
        small = {"train.steps": 3, "warmup.steps": 2, "gates.reward_gain_min": None}
        given = {key.replace("__", "."): value for key, value in changes.items()}
        return load_settings("tiny", overrides={**quick, **small, **given}, environ={})

    return make


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Prefect's temporary server with a database of its own."""
    from prefect.settings import (
        PREFECT_HOME,
        PREFECT_SERVER_ANALYTICS_ENABLED,
        PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS,
        temporary_settings,
    )
    from prefect.testing.utilities import prefect_test_harness

    own = {
        PREFECT_HOME: tmp_path_factory.mktemp("prefect"),
        PREFECT_SERVER_ANALYTICS_ENABLED: False,
        PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS: 180,
    }
    with temporary_settings(own), prefect_test_harness(server_startup_timeout=180):
        yield
