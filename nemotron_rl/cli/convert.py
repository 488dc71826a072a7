"""`convert`: between the Hugging Face layout and Megatron's torch_dist, as a job, safe to run twice."""

from __future__ import annotations

import hashlib
import math
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nemotron_rl.cli import options
from nemotron_rl.cli.options import CacheDir, Cluster, ConfigFile, OutputDir, Preset, RunId, Set
from nemotron_rl.errors import CheckpointError, InputError
from nemotron_rl.paths import check_apart, check_path, nearest_existing

if TYPE_CHECKING:
    from nemotron_rl.checkpoint.conversion import Format
    from nemotron_rl.cluster.filling import Filling
    from nemotron_rl.config.settings import Settings
    from nemotron_rl.report.console import RichReporter

STAGE = "convert"
JOBS: Mapping[Format, str] = {"torch_dist": "convert", "hf": "export"}
"""The job's module in nemotron_rl.jobs by the format that it writes."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(convert)


def convert(
    src: Annotated[str, typer.Argument(metavar="SRC", help="A checkpoint, or with --to hf a converted folder.")],
    dst: Annotated[Path, typer.Argument(metavar="DST", help="A folder that does not exist yet, or is empty.")],
    to: Annotated[Literal["torch_dist", "hf"], typer.Option(help="Format of DST.")] = "torch_dist",
    tp: Annotated[int | None, typer.Option(min=1, help="Tensor-parallel size of the job.")] = None,
    pp: Annotated[int | None, typer.Option(min=1, help="Pipeline-parallel size.")] = None,
    ep: Annotated[int | None, typer.Option(min=1, help="Expert-parallel size.")] = None,
    ranks: Annotated[
        int | None, typer.Option(min=1, help="Ranks in all.", show_default="as few as the sizes need")
    ] = None,
    shard_size: Annotated[
        int | None, typer.Option(parser=options.parse_size, metavar="SIZE", help="Largest shard with --to hf: 5GB.")
    ] = None,
    preset: Preset = None,
    config: ConfigFile = None,
    sets: Set = None,
    output_dir: OutputDir = None,
    run_id: RunId = None,
    cluster: Cluster = None,
    cache_dir: CacheDir = None,
) -> None:
    """Convert a checkpoint to Megatron's torch_dist format, or back; every tensor keeps its type and its bits.

    The split over ranks changes how fast it is and how much memory a rank needs, not the result: torch_dist loads at
    any split. Run twice, the second says that DST is there already; interrupted, it leaves no DST.
    """
    from nemotron_rl.checkpoint.source import open_source, source_name
    from nemotron_rl.preflight import check_split, check_writable
    from nemotron_rl.report.console import RichReporter

    flags: dict[str, object] = {"--output-dir": output_dir, "--run-id": run_id, "--cluster": cluster}
    flags |= {"--source": src, **split_flags(tp, pp, ep, ranks)}
    settings = options.load_options(preset, config, sets, flags, trains=False).settings
    check_writable(settings.output_dir)
    check_path(dst)
    with RichReporter() as reporter:
        fetched = options.bytes_progress(reporter, STAGE)
        source = open_source(src, options.cache_folder(cache_dir), progress=fetched).absolute()
        check_split(settings, _source_config(source, to))
        with reporter.stage(STAGE):
            made = _convert(source, source_name(src), dst, to, settings, shard_size, reporter)
    typer.echo(f"{dst} {'has' if made else 'was there already:'} {source_name(src)} as {to}")


def split_flags(tp: int | None, pp: int | None, ep: int | None, ranks: int | None) -> dict[str, object]:
    """The settings of the split as flags; with any size given, the world size is the smallest that fits."""
    flags: dict[str, object] = {"--tp": tp, "--pp": pp, "--ep": ep, "--ranks": ranks}
    if ranks is None and (tp or pp or ep):
        flags["--ranks"] = (pp or 1) * math.lcm(tp or 1, ep or 1)
    return flags


def _source_config(source: Path, to: Format) -> Mapping[str, Any]:
    """The config of a source that can be converted to this format.

    Raises:
        CheckpointError: It is broken, or is in that format already.
    """
    from nemotron_rl.checkpoint.converted import is_converted, open_converted
    from nemotron_rl.checkpoint.dimensions import dimensions
    from nemotron_rl.checkpoint.layout import CONFIG_FILE, CheckpointFolder

    if to == "torch_dist" and is_converted(source):
        raise CheckpointError(f"{source} is a torch_dist folder already; --to hf converts it back")
    config = open_converted(source) if to == "hf" else CheckpointFolder.open(source).config
    dimensions(config, str(source / CONFIG_FILE))
    return config


def _convert(
    source: Path, name: str, dst: Path, to: Format, settings: Settings, shard_size: int | None, reporter: RichReporter
) -> bool:
    """Make `dst`; False when it is there already."""
    from nemotron_rl.checkpoint.conversion import (
        ConversionRecord,
        check_unchanged,
        combined,
        digest_files,
        is_there_already,
    )
    from nemotron_rl.checkpoint.new_folder import check_new_folder
    from nemotron_rl.cluster.filling import filling
    from nemotron_rl.store.versions import installed_versions

    if not ConversionRecord.read(dst):
        check_new_folder(dst)  # before the source is read
    check_apart(source, dst)
    found = digest_files(source, options.bytes_progress(reporter, STAGE))
    check_unchanged(source, found)
    source_digest = combined(found)
    if is_there_already(dst, to, source_digest):
        return False
    _check_room(dst, sum(file.size for file in found.values()))
    made_from = hashlib.sha256(repr((to, source_digest, str(source), shard_size)).encode()).hexdigest()
    work_dir = (settings.run_dir / STAGE).absolute()
    with filling(dst, made_from, f"{settings.run_id}-{STAGE}", work_dir, settings.cluster) as job:
        reporter.note(f"log in {job.work_dir}")
        _run(source, to, job, settings, shard_size)
        record = ConversionRecord(
            format=to,
            source=name,
            source_digest=source_digest,
            files=digest_files(job.out),
            versions=installed_versions(),
        )
        record.write(job.out)
    return True


def _check_room(dst: Path, nbytes: int) -> None:
    """The result is about as large as the source.

    Raises:
        InputError: The file system of `dst` has less room than that.
    """
    free = shutil.disk_usage(nearest_existing(dst.absolute().parent)).free
    if nbytes > free:
        raise InputError(f"cannot write about {nbytes:,} bytes to {dst}: its file system has {free:,} free")


def _run(source: Path, to: Format, job: Filling, settings: Settings, shard_size: int | None) -> None:
    """Run the job to its end, or follow the one that runs."""
    from nemotron_rl.checkpoint.writer import DEFAULT_SHARD_SIZE
    from nemotron_rl.cluster import JobSpec, open_cluster, run_job
    from nemotron_rl.jobs.requests import METRICS_FILE, ConvertRequest, ExportRequest, Request

    metrics, cluster = job.work_dir / METRICS_FILE, settings.cluster
    request: Request = (
        ConvertRequest(settings=settings, out=job.out, metrics=metrics, hf=source)
        if to == "torch_dist"
        else ExportRequest(
            settings=settings,
            out=job.out,
            metrics=metrics,
            converted=source,
            shard_size=shard_size or DEFAULT_SHARD_SIZE,
        )
    )
    job.work_dir.mkdir(parents=True, exist_ok=True)
    path = request.write(job.work_dir / "request.json")
    spec = JobSpec(
        key=job.key,
        argv=(sys.executable, "-m", f"nemotron_rl.jobs.{JOBS[to]}", str(path)),
        work_dir=job.work_dir,
        distributed=True,
        ranks=settings.parallel.world_size,
        nodes=cluster.nodes,
        cpus_per_rank=cluster.cpus_per_rank,
        gpus_per_node=cluster.gpus_per_node,
        time_limit_minutes=cluster.time_limit_minutes,
    )
    run_job(open_cluster(cluster), spec, poll_seconds=cluster.poll_seconds)
