"""The `nemotron-rl` command: its subcommands, and the one place where an error becomes a message and an exit code."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from nemotron_rl import __version__
from nemotron_rl.cli import checkpoints, convert, planning, runs, stages
from nemotron_rl.cli.errors import show_error
from nemotron_rl.errors import NemotronRLError


class _Commands(TyperGroup):
    """Prints a NemotronRLError and ends with its exit code; any other exception is a fault and keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except NemotronRLError as error:
            show_error(error)
            raise typer.Exit(error.exit_code) from error


app = typer.Typer(
    name="nemotron-rl",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 ok, 1 the run failed, 2 bad usage or input, 3 a gate failed.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nemotron-rl {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Slice, train with RL, evaluate and prove NVIDIA Nemotron-H and Nemotron-3 models."""


runs.register(app)
checkpoints.register(app)
convert.register(app)
stages.register(app)
planning.register(app)


def main() -> None:
    """Run the command that the process's arguments name, and exit."""
    app()
