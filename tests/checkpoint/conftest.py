"""Checkpoints that tests read, made once per session, and a way to have one that may be broken."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nemotron_rl.checkpoint.synth import synthesize


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny preset, three shards. Not to be changed: use `copy_of` for that."""
    folder = tmp_path_factory.mktemp("tiny") / "tiny"
    synthesize("tiny", folder)
    return folder


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[Path], Path]:
    """A copy that the test may break."""
    return lambda source: Path(shutil.copytree(source, tmp_path / "copy"))
