"""A command line to call."""

from __future__ import annotations

import pytest
from click.testing import Result
from typer.testing import CliRunner

from nemotron_rl.cli.app import app


@pytest.fixture
def cli(monkeypatch, tmp_path):
    """Call the command line in an empty folder; the result has exit_code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return call
