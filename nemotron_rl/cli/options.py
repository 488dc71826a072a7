"""Options that several commands share, and the parsers of their values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from nemotron_rl.checkpoint.progress import Progress
    from nemotron_rl.config.load import Loaded
    from nemotron_rl.report.reporter import Reporter

_SIZES = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def parse_layers(text: str | None) -> list[int] | None:
    """`0,1,7,8` as numbers. Raises typer.BadParameter."""
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} should be layer numbers such as 0,1,7,8", param_hint="--layers") from error


def parse_selection(text: str | None) -> list[int] | Literal["auto"] | None:
    """`0,1,7,8` as numbers, or `auto`. Raises typer.BadParameter."""
    return "auto" if text == "auto" else parse_layers(text)


def parse_size(text: str) -> int:
    """`5GB`, `200 MB` or `1GiB` as bytes. Raises typer.BadParameter."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if match is None or match[2].upper() not in _SIZES or not (size := int(float(match[1]) * _SIZES[match[2].upper()])):
        raise typer.BadParameter(f"{text!r} should be a size such as 5GB, 200MB or 1GiB")
    return size


Preset = Annotated[str | None, typer.Option("--preset", "-p", help="Preset to start from: tiny, ultra-4layer, …")]
ConfigFile = Annotated[Path | None, typer.Option("--config", "-c", help="YAML file with settings.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="One setting, such as train.optimizer.lr=1e-6. Repeatable."),
]
Source = Annotated[
    str | None, typer.Option(help="Checkpoint: a folder, hf://org/name@revision, s3://…, synth://PRESET.")
]
OutputDir = Annotated[Path | None, typer.Option(help="Folder for runs and for the local store.")]
RunId = Annotated[str | None, typer.Option(help="Name of the run; by default the preset and the time.")]
Cluster = Annotated[str | None, typer.Option(help="Where jobs run: local or slurm.")]
Store = Annotated[str | None, typer.Option(help="Artifact store: file:///path or s3://bucket/prefix.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the resolved settings and what would run, then stop.")]
DumpDetails = Annotated[
    bool | None, typer.Option("--dump-details", help="Keep every step's samples and loss inputs, for replay.")
]
Layers = Annotated[
    str | None,
    typer.Option(
        metavar="0,1,7,8", help="Layers to keep, in their new order; auto: the cheapest with every block type."
    ),
]
CacheDir = Annotated[
    Path | None, typer.Option(help="Where fetched checkpoints are kept.", show_default="~/.cache/nemotron-rl")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def load_options(
    preset: str | None, config: Path | None, sets: list[str] | None, flags: dict[str, object], *, trains: bool = True
) -> Loaded:
    """Settings from the options of a command; `flags` are settings that have a flag of their own, None when not given.

    `trains` says whether the rules about training hold for it.

    Raises:
        SettingsError: See `nemotron_rl.config.load.load`.
    """
    import os

    from nemotron_rl.config.layers import Override
    from nemotron_rl.config.load import load

    given = [Override(_FLAGS[flag], value, flag) for flag, value in flags.items() if value is not None]
    return load(preset, config_file=config, overrides=[*(sets or ()), *given], environ=os.environ, trains=trains)


_FLAGS = {
    "--source": "source.uri",
    "--output-dir": "output_dir",
    "--run-id": "run_id",
    "--cluster": "cluster.kind",
    "--store": "store.uri",
    "--tp": "parallel.tp",
    "--pp": "parallel.pp",
    "--ep": "parallel.ep",
    "--ranks": "parallel.world_size",
    "--dump-details": "train.dump_details",
}


def cache_folder(cache_dir: Path | None) -> Path:
    """The folder of `--cache-dir`, or the user's own."""
    return cache_dir or Path.home() / ".cache" / "nemotron-rl"


def bytes_progress(reporter: Reporter, stage: str) -> Progress:
    """A checkpoint's progress in bytes as a stage's progress."""
    from nemotron_rl.report.transfer import bytes_progress

    return bytes_progress(reporter, stage)
