"""The commands on checkpoints that need no training stack: synth, inspect, slice, verify."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nemotron_rl.cli import options
from nemotron_rl.cli.options import CacheDir, Json, Layers

if TYPE_CHECKING:
    from nemotron_rl.checkpoint.cover import Choice
    from nemotron_rl.checkpoint.inspect import Inspection
    from nemotron_rl.checkpoint.progress import Progress
    from nemotron_rl.checkpoint.ranged.plan import FetchPlan
    from nemotron_rl.checkpoint.tally import Tally
    from nemotron_rl.report.console import RichReporter

Src = Annotated[str, typer.Argument(metavar="SRC", help="A folder, hf://org/name@revision, s3://… or synth://PRESET.")]
Dst = Annotated[Path, typer.Argument(metavar="DST", help="A folder that does not exist yet, or is empty.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(synth)
    app.command()(inspect)
    app.command("slice")(slice_)
    app.command()(verify)


def synth(
    preset: Annotated[str, typer.Argument(help="tiny, nano-4b, nano-30b-a3b, super-120b-a12b or ultra-550b-a55b.")],
    out: Dst,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random weights.")] = 0,
    layers: Layers = None,
    hidden_size: Annotated[int | None, typer.Option(min=1)] = None,
    num_experts: Annotated[int | None, typer.Option(min=1, help="Routed experts per layer.")] = None,
    vocab_size: Annotated[int | None, typer.Option(min=1)] = None,
    scale: Annotated[
        list[str] | None, typer.Option(metavar="KEY=N", help="Any size in config.json, such as n_groups=4. Repeatable.")
    ] = None,
    shard_size: Annotated[
        int | None, typer.Option(parser=options.parse_size, metavar="SIZE", help="Largest shard, such as 5GB.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be written, then stop.")] = False,
) -> None:
    """Write a random-weight checkpoint in NVIDIA's names and layout."""
    from nemotron_rl.checkpoint.new_folder import check_new_folder
    from nemotron_rl.checkpoint.synth import plan_synth, synthesize

    named = {"hidden_size": hidden_size, "n_routed_experts": num_experts, "vocab_size": vocab_size}
    sizes = {key: value for key, value in named.items() if value is not None} | dict(map(_parse_scale, scale or ()))
    kept = options.parse_selection(layers)
    if dry_run:
        check_new_folder(out)
        plan = plan_synth(preset, seed=seed, overrides=sizes, layers=kept, shard_size=shard_size)
    else:
        with _staged("synth") as progress:
            plan = synthesize(
                preset, out, seed=seed, overrides=sizes, layers=kept, shard_size=shard_size, progress=progress
            )
    _print_made(out, plan.pattern, plan.tally, plan.shards, dry_run)
    _print_certainty(preset, sizes)


def inspect(
    src: Src,
    scan: Annotated[bool, typer.Option("--scan", help="Read every tensor and look for NaN and infinity.")] = False,
    cache_dir: CacheDir = None,
    json: Json = False,
) -> None:
    """Show pattern, parameters and bytes per block, types, MTP head and problems. Ends with 2 if there are any.

    Of a remote checkpoint only index and headers are fetched, unless it is scanned. Of synth://PRESET nothing is made.
    """
    from nemotron_rl.report.console import open_console
    from nemotron_rl.report.tables import inspection_view

    inspection = _inspect(src, scan, options.cache_folder(cache_dir))
    if json:
        typer.echo(inspection.model_dump_json(indent=1))
    else:
        open_console(sys.stdout).print(inspection_view(inspection))
    if inspection.problems:
        raise typer.Exit(2)


def _inspect(src: str, scan: bool, cache: Path) -> Inspection:
    from nemotron_rl.checkpoint.inspect import inspect_checkpoint, inspect_preset
    from nemotron_rl.checkpoint.source import open_ranges, source_name

    if src.startswith("synth://") and not scan:  # Ultra has 1.1 TB, and nothing in it could be wrong
        return inspect_preset(src.removeprefix("synth://").strip("/"))
    with _staged("scan" if scan else None) as progress, open_ranges(src, cache, progress=progress) as source:
        return inspect_checkpoint(source, name=source_name(src), scan=scan, progress=progress)


def slice_(
    src: Src,
    dst: Dst,
    layers: Layers = None,
    mtp: Annotated[Literal["keep", "drop"], typer.Option(help="What to do with the MTP head.")] = "keep",
    cache_dir: CacheDir = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be fetched, then stop.")] = False,
) -> None:
    """Copy some layers into a new checkpoint, renumbered, byte for byte. Only their bytes are fetched.

    Without --layers all are copied. At least one must be attention, without which no loader opens the result, and none
    can be taken twice. Stopped halfway, the same command continues where it was.
    """
    from nemotron_rl.checkpoint.new_folder import check_new_folder
    from nemotron_rl.checkpoint.slice_plan import plan_slice
    from nemotron_rl.checkpoint.slicing import check_outside, write_slice
    from nemotron_rl.checkpoint.source import open_ranges, source_name

    kept = options.parse_selection(layers)
    check_new_folder(dst)  # before anything is fetched
    with (
        _staged("slice") as progress,
        open_ranges(src, options.cache_folder(cache_dir), progress=progress) as source,
    ):
        check_outside(source, dst)
        plan = plan_slice(source, kept, mtp, source_name=source_name(src))
        if not dry_run:
            write_slice(source, dst, plan, progress)
    if plan.choice is not None:
        _print_choice(plan.choice, plan.tally.total.nbytes - plan.choice.chosen.nbytes)
    _print_made(dst, plan.pattern, plan.tally, len(plan.shards), dry_run)
    if dry_run:
        _print_fetch(plan.fetch)


def verify(
    a: Annotated[str, typer.Argument(metavar="A", help="A checkpoint.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another.")],
    cache_dir: CacheDir = None,
    json: Json = False,
) -> None:
    """Compare two checkpoints tensor by tensor, bit by bit, wherever they are. Ends with 1 when they differ."""
    from nemotron_rl.checkpoint.source import open_ranges
    from nemotron_rl.checkpoint.verify import verify_checkpoints
    from nemotron_rl.report.console import open_console
    from nemotron_rl.report.tables import comparison_view

    cache = options.cache_folder(cache_dir)
    with (
        _staged("verify") as progress,
        open_ranges(a, cache, progress=progress) as first,
        open_ranges(b, cache, progress=progress) as second,
    ):
        comparison = verify_checkpoints(first, second, progress)
    if json:
        typer.echo(comparison.model_dump_json(indent=1))
    else:
        open_console(sys.stdout).print(comparison_view(comparison, a, b))
    if not comparison.identical:
        raise typer.Exit(1)


@contextmanager
def _staged(name: str | None) -> Iterator[Progress | None]:
    """A progress bar on stderr, in bytes; None draws nothing."""
    if name is None:
        yield None
        return
    with _reporter() as reporter, reporter.stage(name):
        yield options.bytes_progress(reporter, name)


def _reporter() -> RichReporter:
    from nemotron_rl.report.console import RichReporter

    return RichReporter()


def _parse_scale(text: str) -> tuple[str, int]:
    key, _, value = text.partition("=")
    if not value.isdecimal():
        raise typer.BadParameter(f"{text!r} should be KEY=N, such as n_groups=4", param_hint="--scale")
    return key.replace("-", "_"), int(value)


def _print_made(folder: Path, pattern: str, tally: Tally, shards: int, dry_run: bool) -> None:
    from nemotron_rl.report import format as fmt
    from nemotron_rl.report.console import open_console
    from nemotron_rl.report.tables import tally_table

    console = open_console(sys.stdout)
    console.print(tally_table(tally))
    where = f"{'would be' if dry_run else 'is'} in {folder}, {fmt.plural(shards, 'file')} of tensors"
    mtp = tally.by_block.get("mtp")
    head = f": {tally.base.params:,} and {mtp.params:,} in the MTP head" if mtp else ""
    total = f"{tally.total.tensors:,} tensors, {tally.total.nbytes:,} bytes, {tally.total.params:,} parameters{head}"
    console.print(f"\n{total}\n{pattern} {where}", soft_wrap=True, markup=False)


def _print_certainty(preset: str, changed: dict[str, int]) -> None:
    from nemotron_rl.checkpoint.geometries import certainty
    from nemotron_rl.report.tables import certainty_line

    but = f", but {', '.join(f'{key}={value}' for key, value in changed.items())}" if changed else ""
    typer.echo(f"Geometry: {certainty_line(certainty(preset))}{but}")


def _print_choice(choice: Choice, rest: int) -> None:
    from nemotron_rl.report.console import open_console
    from nemotron_rl.report.tables import choice_view

    open_console(sys.stdout).print(choice_view(choice, rest))


def _print_fetch(plan: FetchPlan) -> None:
    from nemotron_rl.report import format as fmt
    from nemotron_rl.report.console import open_console
    from nemotron_rl.report.tables import fetch_table

    open_console(sys.stdout).print("", fetch_table(plan), "", sep="\n")
    typer.echo(
        f"{plan.needed:,} bytes are needed and {plan.fetched:,} would be fetched ({fmt.size(plan.fetched)}), headers "
        f"not counted: {fmt.plural(len(plan.pieces), 'range')} of {fmt.plural(plan.files, 'file')}"
    )
