"""The flows under a real Prefect engine with its temporary server; the jobs are stand-ins."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import FlowRun

from flows.start import name_of, settings_of
from flows.train import train
from flows.validate import nightly, validate
from nemotron_rl.errors import GateFailed, InputError, WeightMismatch
from nemotron_rl.report.run_report import RunReport
from tasks.progress import use_reporter
from tasks.train import train as train_task

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("prefect_server", "stand_in_jobs")]

STAGES = ["download", "prompts", "slice", "convert", "warmup", "train", "evaluate", "gate", "publish"]
SMALL = {"train.steps": 2, "warmup.steps": 1, "gates.reward_gain_min": None}


class Listener:
    """A Reporter that remembers."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str]] = []

    def stage(self, name):
        self.heard.append(("ran", name))
        return nullcontext()

    def advance(self, stage, done, total, text=""):
        assert 0 <= done <= total

    def step(self, stage, metrics):
        self.heard.append(("step", stage))

    def cached(self, stage):
        self.heard.append(("cached", stage))

    def note(self, text):
        self.heard.append(("note", text))


def flow_run_of(run_id: str) -> FlowRun:
    with get_client(sync_client=True) as client:
        return next(run for run in client.read_flow_runs(limit=200) if run.name == run_id)


def task_states(run_id: str) -> dict[str, str]:
    """Name of the final state by task."""
    by_id = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_of(run_id).id]))
    with get_client(sync_client=True) as client:
        runs = client.read_task_runs(flow_run_filter=by_id)
    return {run.name.rsplit("-", 1)[0]: run.state.name for run in runs}


def artifact_types(run_id: str) -> dict[str, str]:
    by_run = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run_of(run_id).id]))
    with get_client(sync_client=True) as client:
        return {
            artifact.key: artifact.type for artifact in client.read_artifacts(artifact_filter=by_run) if artifact.key
        }


def test_a_run_goes_through_every_stage_and_shows_what_it_found(make_settings):
    settings, listener = make_settings("first"), Listener()
    with use_reporter(listener):
        report = validate(settings)
    assert report.verdict.passed
    assert [name for kind, name in listener.heard if kind == "ran"] == STAGES
    assert listener.heard.count(("step", "train")) == settings.train.steps
    assert task_states("first") == dict.fromkeys(STAGES, "Completed")
    assert artifact_types("first") == {
        "train-progress": "progress",
        "training-steps": "table",
        "reward-plot": "image",
        "logprob-plot": "image",
        "results": "table",
        "report": "markdown",
    }
    assert RunReport.read(settings.run_dir) == report
    assert [stage.name for stage in report.stages] == STAGES[:-1]
    assert (settings.run_dir / "report.md").read_text().startswith("# ")
    assert (settings.run_dir / "checkpoints" / "trained" / "config.json").exists()
    assert (settings.run_dir / "checkpoints" / "base" / "config.json").exists()


def test_a_second_run_makes_nothing_twice_but_trains(make_settings):
    validate(make_settings("one"))
    report = validate(make_settings("two"))
    reused = ["download", "prompts", "slice", "convert", "warmup"]
    states = task_states("two")
    assert [stage for stage in STAGES if states[stage] == "Cached"] == reused
    assert [stage.name for stage in report.stages if stage.cached] == reused
    assert report.warmup, "the warm-up's metrics come with its artifact"


def test_a_deleted_store_is_not_believed_to_be_there(make_settings):
    validate(make_settings("before"))
    shutil.rmtree(make_settings().output_dir / "store")
    validate(make_settings("after"))
    states = task_states("after")
    assert set(states.values()) == {"Completed"}


def test_a_failed_gate_is_published_and_then_raised(make_settings):
    settings = make_settings("strict", gates__accuracy_gain_min=0.5)
    with pytest.raises(GateFailed, match="accuracy_gain_min"):
        validate(settings)
    assert set(task_states("strict").values()) == {"Completed"}
    assert not RunReport.read(settings.run_dir).verdict.passed
    assert "results" in artifact_types("strict")


def test_a_lost_job_is_tried_again(make_settings, monkeypatch):
    monkeypatch.setattr(train_task, "retry_delay_seconds", [0.1])
    settings = make_settings("unlucky")
    (settings.run_dir / "train").mkdir(parents=True)
    (settings.run_dir / "train" / "fail-once").touch()
    assert validate(settings).verdict.passed
    assert len((settings.run_dir / "train" / "starts").read_text().splitlines()) == 2


def test_wrong_weights_are_not_tried_again(make_settings):
    settings = make_settings("wrong")
    (settings.run_dir / "train").mkdir(parents=True)
    (settings.run_dir / "train" / "fail").touch()
    with pytest.raises(WeightMismatch, match="index 7"):
        validate(settings)
    assert len((settings.run_dir / "train" / "starts").read_text().splitlines()) == 1
    assert "evaluate" not in task_states("wrong")


def test_bad_input_leaves_nothing_behind(make_settings, tmp_path):
    with pytest.raises(InputError):
        validate(make_settings("bad", source__uri="no/such/folder"))
    assert list(tmp_path.iterdir()) == []


def test_training_alone_ends_with_a_checkpoint(make_settings):
    settings = make_settings("alone", convert__enabled=False, warmup__steps=0)
    checkpoint = train(settings)
    assert checkpoint == settings.run_dir.absolute() / "checkpoints" / "trained"
    assert (checkpoint / "config.json").exists()
    assert set(task_states("alone")) == {"download", "prompts", "slice", "train", "publish-training"}


def test_a_deployments_parameters_make_the_same_flow(tmp_path: Path):
    report = nightly(
        preset="tiny",
        overrides={**SMALL, "cluster.poll_seconds": 0.05},
        output_dir=str(tmp_path / "runs"),
    )
    assert report.settings.train.steps == 2
    assert report.settings.run_id.startswith("tiny-2")
    assert report.settings.run_dir.is_dir()


def test_a_hook_finds_the_settings_that_the_run_works_with(make_settings, tmp_path):
    settings = make_settings("hooked", warmup__steps=0, convert__enabled=False)
    train(settings)
    assert settings_of(flow_run_of("hooked")) == settings
    report = nightly(preset="tiny", overrides=SMALL, output_dir=str(tmp_path / "runs"))
    with get_client(sync_client=True) as client:
        runs = [run for run in client.read_flow_runs(limit=200) if "preset" in run.parameters]
    deployed = next(run for run in runs if name_of(run, "tiny") == report.settings.run_id)
    assert settings_of(deployed) == report.settings
