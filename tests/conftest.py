"""What all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from nemotron_rl.checkpoint.slicing import slice_checkpoint
from nemotron_rl.checkpoint.synth import synthesize
from tests.small_disk import small_disk

__all__ = ["small_disk"]

# A busy machine makes single examples slow; the number of examples is what keeps the suite fast.
settings.register_profile("default", deadline=None, max_examples=50, database=None)
settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-golden` writes golden files anew; their diff is to be reviewed like code."""
    parser.addoption("--update-golden", action="store_true", help="write the files under tests/golden anew")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests of GPU code run where there is a GPU."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a GPU")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny preset, three shards. Not to be changed."""
    folder = tmp_path_factory.mktemp("tiny") / "tiny"
    synthesize("tiny", folder)
    return folder


@pytest.fixture(scope="session")
def four_layers(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ME*E, the slice that the tiny preset trains."""
    folder = tmp_path_factory.mktemp("four-layers") / "slice"
    slice_checkpoint(tiny, folder, [0, 1, 3, 4])
    return folder


@pytest.fixture(scope="session")
def six_layers(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ME*EM-: every block type, the dense one too."""
    folder = tmp_path_factory.mktemp("six-layers") / "slice"
    slice_checkpoint(tiny, folder, [0, 1, 3, 4, 5, 6])
    return folder
