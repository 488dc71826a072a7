"""A tiny sliced checkpoint and an engine that holds its weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nemotron_rl.checkpoint.slicing import slice_checkpoint
from nemotron_rl.checkpoint.synth import synthesize
from nemotron_rl.rollout.reference.engine import ReferenceEngine
from nemotron_rl.rollout.reference.load import folder_weights


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every block type, the dense one too: ME*EM-."""
    folder = tmp_path_factory.mktemp("rollout")
    synthesize("tiny", folder / "tiny")
    slice_checkpoint(folder / "tiny", folder / "slice", [0, 1, 3, 4, 5, 6])
    return folder / "slice"


@pytest.fixture(scope="session")
def engine(checkpoint: Path) -> ReferenceEngine:
    torch.set_num_threads(1)
    engine = ReferenceEngine.from_folder(checkpoint, stop_tokens=[3])
    engine.receive(folder_weights(checkpoint), version=1)
    return engine
