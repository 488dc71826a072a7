"""An error as the user sees it: one panel on stderr."""

from __future__ import annotations

import sys

from nemotron_rl.errors import NemotronRLError


def show_error(error: NemotronRLError) -> None:
    """Print the error's kind, message and notes. No traceback: these errors say themselves what to do."""
    from rich.panel import Panel
    from rich.text import Text

    from nemotron_rl.report.console import open_console
    from nemotron_rl.report.format import printable

    notes = [str(note) for note in getattr(error, "__notes__", ())]
    text = Text(printable("\n".join([str(error), *notes])), overflow="fold")
    panel = Panel(text, title=type(error).__name__, title_align="left", border_style="red", expand=False)
    open_console(sys.stderr).print(panel)
