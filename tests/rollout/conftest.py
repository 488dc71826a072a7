"""A tiny sliced checkpoint and an engine that holds its weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nemotron_rl.rollout.reference.engine import ReferenceEngine
from nemotron_rl.rollout.reference.load import folder_weights


@pytest.fixture(scope="session")
def checkpoint(six_layers: Path) -> Path:
    return six_layers


@pytest.fixture(scope="session")
def engine(checkpoint: Path) -> ReferenceEngine:
    torch.set_num_threads(1)
    engine = ReferenceEngine.from_folder(checkpoint, stop_tokens=[3])
    engine.receive(folder_weights(checkpoint), version=1)
    return engine
