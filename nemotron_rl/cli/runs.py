"""The commands that run a flow (`validate`, `train`), and `report`, which shows a finished run again."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nemotron_rl.cli import options
from nemotron_rl.cli.options import (
    Cluster,
    ConfigFile,
    DryRun,
    DumpDetails,
    OutputDir,
    Preset,
    RunId,
    Set,
    Source,
    Store,
)

if TYPE_CHECKING:
    from nemotron_rl.config.settings import Settings

PREFECT_DEFAULTS = {
    # The reporter shows progress and the error; Prefect's own lines would repeat both, with its traceback.
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    # On a busy machine the ephemeral server needs longer than Prefect's 20 s.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
    # The heartbeat's write collides with the server's others on a busy machine: "database is locked" (3.9.1).
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    # The client sends usage data of its own, and says so in the middle of the first run's progress.
    "DO_NOT_TRACK": "1",
}

OWN_SERVER_DEFAULTS = {
    # Ctrl-C reaches the temporary server too, and each call to it is then tried again for up to a minute.
    "PREFECT_CLIENT_MAX_RETRIES": "2",
}
"""For a run without a server of the user's."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    _flow_command(app, "validate", "Slice, convert, train a few steps, evaluate and gate: the nightly flow.", _validate)
    _flow_command(app, "train", "Slice, convert and train, without evaluation and gates.", _train)
    app.command("report")(report)


def _flow_command(app: typer.Typer, name: str, text: str, start: Callable[[Settings], object]) -> None:
    """Add a command that loads settings, checks the input and starts a flow."""

    @app.command(name, help=text)
    def command(
        preset: Preset = None,
        config: ConfigFile = None,
        sets: Set = None,
        source: Source = None,
        output_dir: OutputDir = None,
        run_id: RunId = None,
        cluster: Cluster = None,
        store: Store = None,
        dump_details: DumpDetails = None,
        dry_run: DryRun = False,
    ) -> None:
        from nemotron_rl.cli.dry_run import print_plan
        from nemotron_rl.preflight import preflight

        flags: dict[str, object] = {
            "--source": source,
            "--output-dir": output_dir,
            "--run-id": run_id,
            "--cluster": cluster,
            "--store": store,
            "--dump-details": dump_details,
        }
        loaded = options.load_options(preset, config, sets, flags)
        preflight(loaded.settings, surroundings=not dry_run)
        if dry_run:
            print_plan(name, loaded)
        else:
            _run(loaded.settings, start)


def _run(settings: Settings, start: Callable[[Settings], object]) -> None:
    """Run a flow with progress on stderr, then print the summary that it wrote, also when it raised."""
    from nemotron_rl.cli.interrupt import ended_by_interrupt
    from nemotron_rl.report.console import RichReporter
    from nemotron_rl.report.run_report import REPORT_FILE

    own_server = "PREFECT_API_URL" not in os.environ
    for name, value in (PREFECT_DEFAULTS | (OWN_SERVER_DEFAULTS if own_server else {})).items():
        os.environ.setdefault(name, value)
    path = settings.run_dir / REPORT_FILE
    before = _stamp(path)
    try:
        with RichReporter() as reporter:
            reporter.note(f"{settings.run_id} in {settings.run_dir}; starting Prefect")
            from tasks.progress import use_reporter  # imports Prefect, which reads the environment then

            advice = f"{settings.run_id} has ended; to go on, give --run-id {settings.run_id} again"
            with use_reporter(reporter), ended_by_interrupt(reporter, advice):
                start(settings)
    finally:
        if _stamp(path) != before:  # not one that an earlier run of the same name left
            _print_report(path)


def _stamp(path: Path) -> tuple[int, int] | None:
    return (path.stat().st_mtime_ns, path.stat().st_size) if path.exists() else None


def _print_report(path: Path) -> None:
    from nemotron_rl.report.console import open_console
    from nemotron_rl.report.run_report import RunReport
    from nemotron_rl.report.summary import summary

    open_console(sys.stdout).print(summary(RunReport.read(path)))


def _validate(settings: Settings) -> None:
    from flows.validate import validate

    validate(settings)


def _train(settings: Settings) -> None:
    from flows.train import train

    train(settings)


def report(
    run: Annotated[Path, typer.Argument(help="Folder of a run, such as runs/tiny-20261130-083000.")],
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    json: options.Json = False,
) -> None:
    """Print the summary of a finished run again."""
    from nemotron_rl.report.markdown import markdown as as_markdown
    from nemotron_rl.report.run_report import RunReport

    found = RunReport.read(run)
    if json:
        typer.echo(found.model_dump_json(indent=1))
    elif markdown:
        typer.echo(as_markdown(found))
    else:
        _print_report(run)
