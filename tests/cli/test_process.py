"""Claims about the command line as a process: exit codes, streams, imports, and how a run ends."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nemotron_rl.cli.runs import _run
from nemotron_rl.config.load import load_settings
from nemotron_rl.errors import GateFailed, JobError
from nemotron_rl.gates.judge import judge
from nemotron_rl.report.console import RichReporter
from nemotron_rl.report.run_report import RunReport

HEAVY = {"torch", "prefect", "transformers", "numpy", "pydantic", "megatron", "vl_convert"}


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", "from nemotron_rl.cli import main; main()", *arguments]
    return subprocess.run(program, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def imported_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return {name.partition(".")[0] for name in output.split()}


def test_an_error_ends_with_its_exit_code_and_one_panel_on_stderr(tmp_path):
    result = command("validate", "--preset", "tinny", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert "SettingsError" in result.stderr and "Traceback" not in result.stderr


def test_bad_usage_ends_with_2_and_help_with_0(tmp_path):
    assert command("nonsense", cwd=tmp_path).returncode == 2
    assert command("--help", cwd=tmp_path).returncode == 0


def test_the_command_line_itself_imports_nothing_heavy():
    assert not imported_by("import nemotron_rl.cli") & HEAVY


def test_settings_data_rewards_gates_and_reports_need_no_training_stack():
    modules = ["config.load", "data.arithmetic", "data.sampler", "reward.registry", "gates.judge", "evaluate.scores"]
    modules += ["report.console", "report.summary", "report.markdown", "report.plots", "report.tables", "preflight"]
    statement = "\n".join(f"import nemotron_rl.{module}" for module in modules)
    assert not imported_by(statement) & {"torch", "prefect", "transformers", "megatron"}


@pytest.fixture
def settings(tmp_path):
    return load_settings("tiny", overrides={"output_dir": str(tmp_path), "run_id": "x"}, environ={})


def write_report(settings):
    settings.run_dir.mkdir()
    verdict = judge(settings.gates, [], None)
    report = RunReport(
        version="0", settings=settings, started=datetime.now(UTC), seconds=1.0, verdict=verdict, metrics=()
    )
    report.write(settings.run_dir)
    verdict.raise_if_failed()


def test_a_run_whose_gates_failed_shows_its_summary_and_fails(settings, capsys):
    with pytest.raises(GateFailed):
        _run(settings, write_report)
    shown = capsys.readouterr()
    assert "FAILED: logprob_abs_diff_max" in shown.out and "starting Prefect" in shown.err


def test_a_run_that_failed_early_does_not_show_an_older_report(settings, capsys):
    def fail(settings):
        raise JobError("the trainer died")

    with pytest.raises(GateFailed):
        write_report(settings)
    with pytest.raises(JobError):
        _run(settings, fail)
    assert capsys.readouterr().out == ""


def test_the_flow_finds_the_reporter(settings, capsys):
    from tasks.progress import reporter

    _run(settings, lambda _: reporter().cached("download"))
    assert "✓ download" in capsys.readouterr().err
    assert not isinstance(reporter(), RichReporter)
