"""Conversion to torch_dist and back: every bit of every tensor, at any split over ranks, saved and loaded."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from nemotron_rl.checkpoint.conversion import digest_files
from tests.oracles.checkpoint_files import read_checkpoint
from tests.oracles.checkpoint_variants import full_precision, mixed

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).with_name("convert_program.py")
COMMAND = str(Path(sys.executable).with_name("nemotron-rl"))

# `mixed-one` is made by the command line on one rank, and `mixed-tp2` converted back by it, below.
STEPS = [
    *(("convert", split, "mixed", f"mixed-{split}") for split in ("tp2", "pp2", "ep2")),
    ("convert", "whole", "fp32", "fp32-whole"),
    *(("export", split, "mixed-one", f"mixed-one-{split}") for split in ("whole", "tp2", "pp2", "ep2")),
    ("export", "pp2", "mixed-tp2", "mixed-tp2-pp2"),
    ("export", "ep2", "mixed-pp2", "mixed-pp2-ep2"),
    ("export", "tp2", "mixed-ep2", "mixed-ep2-tp2"),
    ("export", "whole", "mixed-pp2", "mixed-pp2-whole"),
    ("export", "whole", "mixed-ep2", "mixed-ep2-whole"),
    ("export", "tp2", "fp32-whole", "fp32-whole-tp2"),
    ("export_trainer", "tp2", "mixed-one", "mixed-one-trainer"),
    ("refuse", "pp2", "geometry", "geometry.txt"),
    ("refuse", "tp2", "fewer", "fewer.txt"),
    ("refuse", "ep2", "unlisted", "unlisted.txt"),
    ("refuse", "whole", "truncated", "truncated.txt"),
]
EXPORTED = [destination for action, _, _, destination in STEPS if action.startswith("export")] + ["mixed-tp2-one"]


@pytest.fixture(scope="module")
def place(six_layers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`mixed` and `fp32`, and `mixed-one` by the command line, whose launcher is killed and started again."""
    place = tmp_path_factory.mktemp("conversion")
    mixed(six_layers, place / "mixed")
    full_precision(six_layers, place / "fp32")
    first = command(place, "convert", "mixed", "mixed-one")
    wait_for(first, lambda: list(place.glob(".mixed-one.filling/out-*")))
    second = command(place, "convert", "mixed", "mixed-one")
    place.joinpath("second.txt").write_text(f"{second.wait()} {second.communicate()[1]}")
    first.send_signal(signal.SIGKILL)
    first.wait()
    third = command(place, "convert", "mixed", "mixed-one")
    place.joinpath("third.txt").write_text(f"{third.wait()} {third.communicate()[1]}")
    return place


@pytest.fixture(scope="module")
def exported(place: Path) -> Path:
    """The results of STEPS on two ranks."""
    damage(place)
    plan = place / "steps.json"
    plan.write_text(json.dumps([(action, split, str(place / a), str(place / b)) for action, split, a, b in STEPS]))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*launcher, str(PROGRAM), str(plan)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return place


def damage(place: Path) -> None:
    """Copies of `mixed-one` with something wrong."""
    for name in ("geometry", "fewer", "unlisted", "truncated"):
        shutil.copytree(place / "mixed-one", place / name)
    config = json.loads((place / "mixed-one" / "config.json").read_text())
    (place / "geometry" / "config.json").write_text(json.dumps(config | {"intermediate_size": 128}))
    shorter = {"hybrid_override_pattern": "ME*EM", "layers_block_type": None, "num_hidden_layers": None}
    (place / "fewer" / "config.json").write_text(json.dumps(config | shorter))
    listed = json.loads((place / "mixed-one" / "tensors.json").read_text())
    gone = [row for row in listed if row["name"] != "backbone.layers.3.mixer.experts.7.down_proj.weight"]
    (place / "unlisted" / "tensors.json").write_text(json.dumps(gone))
    shard = place / "truncated" / "torch_dist" / "__0_0.distcp"
    os.truncate(shard, shard.stat().st_size - 1)


def command(place: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([COMMAND, *words], cwd=place, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for(process: subprocess.Popen[str], condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.02)


def told(file: Path) -> str:
    """What a command said, without its frame."""
    return " ".join(file.read_text().replace("│", " ").split())


def test_two_conversions_at_once_make_one_result(place: Path) -> None:
    assert told(place / "second.txt").startswith("2 ")
    assert "another process is writing mixed-one; wait for it" in told(place / "second.txt")


def test_a_conversion_whose_launcher_was_killed_is_finished_by_the_next(place: Path) -> None:
    assert told(place / "third.txt").startswith("0 ")
    assert (place / "mixed-one" / ".nemotron_rl_convert.json").exists()
    assert not list(place.glob(".mixed-one*"))


def test_a_second_conversion_finds_the_result_and_changes_nothing(place: Path) -> None:
    before = digest_files(place / "mixed-one")
    again = command(place, "convert", "mixed", "mixed-one")
    assert again.wait() == 0
    assert "mixed-one was there already" in again.communicate()[0]
    other = command(place, "convert", "fp32", "mixed-one")
    assert other.wait() == 2
    assert "holds the conversion of mixed to torch_dist" in " ".join(other.communicate()[1].split())
    assert digest_files(place / "mixed-one") == before


@pytest.fixture(scope="module")
def back(exported: Path) -> Path:
    """`mixed-tp2` converted back by the command line on one rank, after a try whose rank was killed."""
    failed = command(exported, "convert", "mixed-tp2", "mixed-tp2-one", "--to", "hf", "--shard-size", "500kB")
    wait_for(failed, lambda: ranks_of(exported / "mixed-tp2"))
    for rank in ranks_of(exported / "mixed-tp2"):
        rank.kill()
    exported.joinpath("failed.txt").write_text(f"{failed.wait()} {failed.communicate()[1]}")
    exported.joinpath("left.txt").write_text(" ".join(path.name for path in exported.glob("*mixed-tp2-one*")))
    again = command(exported, "convert", "mixed-tp2", "mixed-tp2-one", "--to", "hf", "--shard-size", "500kB")
    assert again.wait() == 0, again.communicate()
    return exported


def ranks_of(source: Path) -> list[psutil.Process]:
    """The ranks that convert this folder: processes whose request names it."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if (
            "nemotron_rl.jobs.export" in words
            and "torch.distributed.run" not in words
            and "LOCAL_RANK" in environ(process)
        ):
            request = Path(words[-1])
            if request.exists() and str(source) in request.read_text():
                found.append(process)
    return found


def environ(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}


def test_a_killed_rank_leaves_nothing_and_the_next_try_succeeds(back: Path) -> None:
    assert told(back / "failed.txt").startswith("1 ")
    assert told(back / "left.txt") == ""
    assert (back / "mixed-tp2-one" / "config.json").exists()


@pytest.mark.parametrize("name", EXPORTED)
def test_every_tensor_comes_back_with_its_type_and_bits(back: Path, name: str) -> None:
    source, found = read_checkpoint(back / name.split("-")[0]), read_checkpoint(back / name)
    assert found.keys() == source.keys()
    assert [tensor for tensor in source if found[tensor] != source[tensor]] == []


@pytest.mark.parametrize("name", EXPORTED)
def test_config_tokenizer_and_all_else_come_back(back: Path, name: str) -> None:
    source, found = back / name.split("-")[0], back / name
    for file in source.iterdir():
        if file.suffix != ".safetensors":
            assert (found / file.name).read_bytes() == file.read_bytes()
    new = {file.name for file in found.iterdir()} - {file.name for file in source.iterdir()}
    assert {n for n in new if not n.startswith("model-")} <= {
        "model.safetensors.index.json",
        ".nemotron_rl_convert.json",
    }


def test_torch_dist_takes_no_more_room_than_the_source(exported: Path) -> None:
    source = (exported / "mixed" / "model.safetensors").stat().st_size
    for split in ("one", "tp2", "pp2", "ep2"):
        written = sum(file.stat().st_size for file in (exported / f"mixed-{split}" / "torch_dist").iterdir())
        assert written < 1.5 * source


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("geometry", "describes another model than"),
        ("fewer", "have no place in that model: backbone.layers.5."),
        ("unlisted", "1 tensors that the model of its config needs are not there: backbone.layers.3.mixer.experts.7"),
        ("truncated", "__0_0.distcp is truncated"),
    ],
)
def test_a_folder_that_does_not_fit_together_is_refused_on_every_rank(exported: Path, name: str, message: str) -> None:
    assert message in (exported / f"{name}.txt").read_text()


def test_the_command_line_names_the_damaged_file(exported: Path) -> None:
    refused = command(exported, "convert", "truncated", "never", "--to", "hf")
    assert refused.wait() == 2
    assert "__0_0.distcp is damaged: it has" in " ".join(refused.communicate()[1].split())
    assert not list(exported.glob("*never*"))
