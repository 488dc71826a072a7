"""Stages that run as jobs: one job per stage and run, whoever follows it, and nothing of a failed one is kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from nemotron_rl.config.settings import Settings
from nemotron_rl.errors import InputError, JobError, WeightMismatch
from nemotron_rl.jobs.requests import TrainRequest
from tasks.job import StageJob, cancel_jobs
from tasks.stage import Recipe

RECIPE = Recipe("train", (), {"steps": 3})
pytestmark = pytest.mark.usefixtures("stand_in_jobs")


class Stage:
    """The train stage of a run that starts from a folder with one file."""

    def __init__(self, settings: Settings) -> None:
        self.folder = settings.run_dir.absolute() / "train"
        self.out = self.folder / "out"
        self.start = settings.run_dir / "start"
        self.start.mkdir(parents=True)
        (self.start / "weights").write_text("w")
        self.folder.mkdir()
        self.seen: list[int] = []
        self.job = StageJob("train", settings, RECIPE, steps=3, on_step=lambda m: self.seen.append(int(m["step"])))

    def run(self):
        return self.job.run(TrainRequest, self.out, run_dir=self.out, start=self.start, prompts=self.start / "unread")

    @property
    def starts(self) -> int:
        return len((self.folder / "starts").read_text().splitlines())


@pytest.fixture
def stage(make_settings) -> Stage:
    return Stage(make_settings())


def wait_for(condition, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_job_leaves_its_results_and_every_step_is_told_once(stage):
    facts = stage.run()
    assert stage.seen == [0, 1, 2]
    assert facts["steps"] == 3 and facts["last_step"]["step"] == 2
    assert (stage.out / "weights").read_text() == "w"
    assert len((stage.out / "metrics.jsonl").read_text().splitlines()) == 3


def test_a_completed_job_is_not_run_twice(stage):
    stage.run()
    stage.run()
    assert stage.starts == 1
    assert (stage.out / "weights").exists()


def test_a_failed_job_says_why_and_the_next_try_starts_with_an_empty_folder(stage):
    (stage.folder / "fail-once").touch()
    with pytest.raises(JobError, match="exit code 9"):
        stage.run()
    (stage.out / "left-over").touch()
    stage.run()
    assert stage.starts == 2
    assert not (stage.out / "left-over").exists()
    assert len((stage.out / "metrics.jsonl").read_text().splitlines()) == 3, "of the second try only"


def test_an_error_that_the_job_reports_keeps_its_class(stage):
    (stage.folder / "fail").touch()
    with pytest.raises(WeightMismatch, match="differs at index 7"):
        stage.run()


def test_a_completed_job_whose_results_were_deleted_is_not_taken_for_done(stage):
    stage.run()
    for file in stage.out.iterdir():
        file.unlink()
    stage.out.rmdir()
    with pytest.raises(InputError, match="Use another run_id"):
        stage.run()


def test_a_job_outlives_its_follower_and_the_next_one_finds_it(stage, make_settings):
    """The follower is killed, as when a worker dies; the job is not started again and is told from its first step."""
    (stage.folder / "slow").touch()
    script = f"""
import sys
from pathlib import Path
from nemotron_rl.config.settings import Settings
import tasks.job
from tests.tasks.test_job import RECIPE
from nemotron_rl.jobs.requests import TrainRequest
from dataclasses import replace
tasks.job.JOBS = "tests.flows.stand_in"
spec = tasks.job.StageJob._spec
tasks.job.StageJob._spec = lambda job: replace(spec(job), distributed=False)
settings = Settings.model_validate_json(Path(sys.argv[1]).read_text())
start = Path({str(stage.start)!r})
job = tasks.job.StageJob("train", settings, RECIPE, steps=3)
job.run(TrainRequest, Path({str(stage.out)!r}), run_dir=start, start=start, prompts=start)
"""
    settings_file = stage.folder / "settings.json"
    settings_file.write_text(stage.job.settings.model_dump_json())
    follower = subprocess.Popen([sys.executable, "-c", script, str(settings_file)])
    wait_for(lambda: (stage.folder / "starts").exists())
    follower.send_signal(signal.SIGKILL)
    follower.wait()

    cancelling = threading.Timer(0.5, cancel_jobs, [stage.job.settings])
    cancelling.start()
    with pytest.raises(JobError, match="cancelled"):
        stage.run()
    cancelling.join()
    assert stage.starts == 1


@pytest.fixture
def heeded_interrupts():
    """A test run that a shell has put into the background ignores SIGINT; here it is heeded."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded_interrupts")
def test_an_interrupt_ends_the_job(stage):
    (stage.folder / "slow").touch()

    def interrupt() -> None:
        wait_for(lambda: (stage.folder / "starts").exists())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        stage.run()
    assert cancel_jobs(stage.job.settings) == [], "it has ended already"


def test_cancelling_a_run_without_jobs_is_harmless(make_settings):
    assert cancel_jobs(make_settings("never-ran")) == []


def test_the_request_and_the_key_name_the_run(stage):
    stage.run()
    request = json.loads((stage.folder / "request.json").read_text())
    assert request["settings"]["run_id"] == "run"
    assert stage.job._spec().key == f"run.train.{RECIPE.digest[:12]}"
