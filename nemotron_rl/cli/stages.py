"""The stages that need the training stack, alone: evaluate, replay. They run as jobs, without a flow."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nemotron_rl.cli import options
from nemotron_rl.cli.options import CacheDir, Cluster, ConfigFile, OutputDir, Preset, RunId, Set
from nemotron_rl.errors import InputError, NemotronRLError
from nemotron_rl.paths import check_path

if TYPE_CHECKING:
    from nemotron_rl.config.settings import Settings
    from nemotron_rl.data.prompts import Prompt
    from nemotron_rl.jobs.requests import Request
    from nemotron_rl.report.reporter import Reporter


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(evaluate)
    app.command()(replay)


def evaluate(
    checkpoints: Annotated[list[str], typer.Argument(metavar="SRC...", help="One or more checkpoints.")],
    prompts: Annotated[
        Path | None, typer.Option(help="JSONL of prompts; by default the settings' held-out ones.")
    ] = None,
    preset: Preset = None,
    config: ConfigFile = None,
    sets: Set = None,
    output_dir: OutputDir = None,
    run_id: RunId = None,
    cluster: Cluster = None,
    cache_dir: CacheDir = None,
) -> None:
    """Measure the accuracy of checkpoints on the same held-out prompts."""
    from nemotron_rl.checkpoint.layout import CheckpointFolder
    from nemotron_rl.checkpoint.source import open_source
    from nemotron_rl.data.prompts import write_prompts
    from nemotron_rl.evaluate.scores import Evaluation
    from nemotron_rl.jobs.requests import METRICS_FILE, EvaluateRequest
    from nemotron_rl.preflight import check_writable
    from nemotron_rl.report.console import RichReporter, open_console
    from nemotron_rl.report.summary import accuracy_table

    flags: dict[str, object] = {"--output-dir": output_dir, "--run-id": run_id, "--cluster": cluster}
    settings = options.load_options(preset, config, sets, flags).settings
    check_writable(settings.output_dir)
    names = distinct_names(checkpoints)
    folders = [open_source(uri, options.cache_folder(cache_dir)).absolute() for uri in checkpoints]
    for folder in folders:
        CheckpointFolder.open(folder)
    held_out = _held_out(prompts, settings)
    job = _job_folder((settings.run_dir / "evaluate").absolute())
    request = EvaluateRequest(
        settings=settings,
        out=_job_folder(job / "out"),
        metrics=job / METRICS_FILE,
        models=dict(zip(names, folders, strict=True)),
        prompts=write_prompts(job / "prompts.jsonl", held_out),
    )
    with RichReporter() as reporter, reporter.stage("evaluate"):
        _run_job(settings, "evaluate", request, job, reporter)
    open_console(sys.stdout).print(accuracy_table(Evaluation.read(request.out / "evaluation.json")))


def replay(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run that was trained with --dump-details.")],
    step: Annotated[int, typer.Argument(metavar="STEP", min=0, help="Step to run again, as in its metrics.")],
) -> None:
    """Run the training half of a step again, from what it kept, and compare loss, gradient norm and weights."""
    import shutil

    from nemotron_rl.jobs.replayed import Replays, kept_steps
    from nemotron_rl.jobs.requests import METRICS_FILE, ReplayRequest, TrainRequest
    from nemotron_rl.report.console import RichReporter

    check_path(run)
    path = run.absolute() / "train" / "request.json"
    if not path.exists():
        raise InputError(f"{run} is not a run that has trained: {path} is missing")
    if step not in (kept := kept_steps(run)):
        steps = f"steps {kept[0]} to {kept[-1]}" if kept else "no step; train with --dump-details"
        raise InputError(f"step {step} of {run} was not kept; it kept {steps}")
    train = TrainRequest.read(path)
    job = run.absolute() / "replay" / f"step_{step}"
    shutil.rmtree(job, ignore_errors=True)
    request = ReplayRequest(
        settings=train.settings, out=_job_folder(job / "out"), metrics=job / METRICS_FILE, train=train, step=step
    )
    with RichReporter() as reporter, reporter.stage("replay"):
        _run_job(train.settings, "replay", request, job, reporter, ranks=train.settings.parallel.world_size)
    found = Replays.read(request.out)
    typer.echo(found.text())
    if not all(one.equal for one in found.steps):
        raise NemotronRLError(f"step {step} of {run} does not replay bit for bit")


def distinct_names(uris: Sequence[str]) -> list[str]:
    """A name for each checkpoint: the short one where that tells it apart, else the whole address.

    Raises:
        InputError: a checkpoint is named twice.
    """
    from nemotron_rl.checkpoint.source import source_name

    if twice := [uri for uri in uris if uris.count(uri) > 1]:
        raise InputError(f"{twice[0]} is named twice; each checkpoint is evaluated once")
    short = [source_name(uri) for uri in uris]
    return [name if short.count(name) == 1 else uri for name, uri in zip(short, uris, strict=True)]


def _held_out(given: Path | None, settings: Settings) -> list[Prompt]:
    """The prompts of the given file, or those that the settings hold out."""
    from nemotron_rl.data.arithmetic import generate_arithmetic
    from nemotron_rl.data.prompts import load_prompts

    if (path := given or settings.data.eval_file) is not None:
        return load_prompts(path)
    return generate_arithmetic(settings.data.seed, settings.data.eval_prompts, settings.data.arithmetic)[1]


def _job_folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def _run_job(settings: Settings, name: str, request: Request, folder: Path, reporter: Reporter, ranks: int = 0) -> None:
    """Run `nemotron_rl.jobs.NAME` to its end, under torchrun when `ranks` is given."""
    from nemotron_rl.cluster.factory import open_cluster
    from nemotron_rl.cluster.job import JobSpec
    from nemotron_rl.cluster.run import run_job

    path = request.write(folder / "request.json")
    cluster = settings.cluster
    spec = JobSpec(
        key=f"{settings.run_id}-{name}",
        argv=(sys.executable, "-m", f"nemotron_rl.jobs.{name}", str(path)),
        work_dir=folder,
        distributed=ranks > 0,
        ranks=ranks or 1,
        nodes=cluster.nodes if ranks else 1,
        cpus_per_rank=cluster.cpus_per_rank,
        gpus_per_node=cluster.gpus_per_node,
        time_limit_minutes=cluster.time_limit_minutes,
    )
    reporter.note(f"log in {folder}")
    run_job(open_cluster(cluster), spec, poll_seconds=cluster.poll_seconds)
