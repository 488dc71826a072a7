"""Conversion to torch_dist and back: every bit of every tensor, at any split over ranks, saved and loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.oracles.checkpoint_files import read_checkpoint
from tests.oracles.checkpoint_variants import full_precision, mixed

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("convert_program.py")
Steps = list[tuple[str, str, str, str]]
"""(action, split, source, destination)."""

ON_ONE: Steps = [("convert", "whole", "mixed", "mixed-one"), ("convert", "whole", "fp32", "fp32-one")]
ON_TWO: Steps = [
    *(("export", split, "mixed-one", f"mixed-one-{split}") for split in ("tp2", "pp2", "ep2")),
    *(("convert", split, "mixed", f"mixed-{split}") for split in ("tp2", "pp2", "ep2")),
    ("export", "pp2", "mixed-tp2", "mixed-tp2-pp2"),
    ("export", "ep2", "mixed-pp2", "mixed-pp2-ep2"),
    ("export", "tp2", "mixed-ep2", "mixed-ep2-tp2"),
    ("export", "whole", "mixed-tp2", "mixed-tp2-dp2"),
    ("export", "tp2", "fp32-one", "fp32-one-tp2"),
]
BACK_ON_ONE: Steps = [
    *(("export", "whole", f"mixed-{split}", f"mixed-{split}-one") for split in ("one", "tp2", "pp2", "ep2")),
    ("export", "whole", "fp32-one", "fp32-one-one"),
]
EXPORTED = [step[3] for step in [*ON_TWO, *BACK_ON_ONE] if step[0] == "export"]


@pytest.fixture(scope="module")
def folder(six_layers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both checkpoints and what became of them."""
    place = tmp_path_factory.mktemp("conversion")
    mixed(six_layers, place / "mixed")
    full_precision(six_layers, place / "fp32")
    for ranks, steps in ((1, ON_ONE), (2, ON_TWO), (1, BACK_ON_ONE)):
        run(place, ranks, steps)
    return place


def run(place: Path, ranks: int, steps: Steps) -> None:
    plan = place / "steps.json"
    plan.write_text(json.dumps([(action, split, str(place / a), str(place / b)) for action, split, a, b in steps]))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    done = subprocess.run([*launcher, str(PROGRAM), str(plan)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]


@pytest.mark.parametrize("exported", EXPORTED)
def test_every_tensor_comes_back_with_its_type_and_bits(folder: Path, exported: str) -> None:
    source = read_checkpoint(folder / exported.split("-")[0])
    found = read_checkpoint(folder / exported)
    assert found.keys() == source.keys()
    assert [name for name in source if found[name] != source[name]] == []


@pytest.mark.parametrize("exported", EXPORTED)
def test_config_tokenizer_and_all_else_come_back(folder: Path, exported: str) -> None:
    source, found = folder / exported.split("-")[0], folder / exported
    for file in source.iterdir():
        if file.suffix != ".safetensors":
            assert (found / file.name).read_bytes() == file.read_bytes()
    new = {file.name for file in found.iterdir()} - {file.name for file in source.iterdir()}
    assert {name for name in new if not name.startswith("model-")} == {"model.safetensors.index.json"}


def test_torch_dist_takes_no_more_room_than_the_source(folder: Path) -> None:
    source = (folder / "mixed" / "model.safetensors").stat().st_size
    for split in ("one", "tp2", "pp2", "ep2"):
        written = sum(file.stat().st_size for file in (folder / f"mixed-{split}" / "torch_dist").iterdir())
        assert written < 1.5 * source
