"""How a job starts and fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from nemotron_rl.cluster.failure import read_failure
from nemotron_rl.config.load import load_settings
from nemotron_rl.errors import CheckpointError
from nemotron_rl.jobs.requests import EvaluateRequest, TrainRequest


def test_a_request_survives_its_file(tmp_path: Path) -> None:
    settings = load_settings("tiny", environ={})
    request = TrainRequest(
        settings=settings,
        out=tmp_path,
        metrics=tmp_path / "m",
        run_dir=tmp_path,
        start=tmp_path,
        prompts=tmp_path / "p",
    )
    assert TrainRequest.read(request.write(tmp_path / "request.json")) == request


def test_a_users_mistake_found_by_a_job_keeps_its_class_message_and_exit_code(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "prompts.jsonl").write_text('{"prompt": [{"role": "user", "content": "1+1="}], "label": "2"}\n')
    request = EvaluateRequest(
        settings=load_settings("tiny", environ={}),
        out=tmp_path / "out",
        metrics=tmp_path / "metrics.jsonl",
        models={"base": tmp_path / "absent"},
        prompts=tmp_path / "prompts.jsonl",
    ).write(tmp_path / "request.json")
    done = subprocess.run(
        [sys.executable, "-m", "nemotron_rl.jobs.evaluate", str(request)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    failure = read_failure(tmp_path)
    assert isinstance(failure, CheckpointError)
    assert "absent" in str(failure)
    assert json.loads((tmp_path / "error.json").read_text())["exit_code"] == 2


def test_a_job_without_its_request_says_how_it_is_called() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nemotron_rl.jobs.evaluate"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "usage: python -m" in done.stderr
