"""The summary as Markdown, for Prefect artifacts and report.md."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from nemotron_rl.report import format as fmt
from nemotron_rl.report.facts import key_figures
from nemotron_rl.report.run_report import RunReport


def markdown(report: RunReport) -> str:
    """The same content as `summary`, in tables that any Markdown reader shows."""
    environment = Environment(
        loader=PackageLoader("nemotron_rl.report"),
        undefined=StrictUndefined,
        trim_blocks=False,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown; `cell` escapes what could break a table
    )
    environment.filters |= {
        "number": fmt.number,
        "share": fmt.share,
        "seconds": fmt.seconds,
        "size": fmt.size,
        "cell": _cell,
    }
    return environment.get_template("report.md.j2").render(report=report, figures=key_figures(report))


def _cell(text: str) -> str:
    """Text that stays within its table cell and is shown as it is."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
