"""How fast `slice` copies, how much it fetches and how much memory it takes.

    python -m benchmarks.slice [--folder DIR] [--rounds N] [--quick]

A synthetic Nemotron-3-Nano of many experts and 14 layers is sliced to layers 0,1,5,6 (ME*E), a third of its bytes.

Speed: the slice from a local folder against `cp -r` of the finished slice, so of the same number of bytes, in turn.
Both read from a warm page cache (what they read is read once before each round) and write into the page cache of one
file system. Neither calls fsync, and what the round before left to be written is flushed (sync) between the rounds.
The start of the interpreter is not counted: it takes as long for 1 GB as for 1 TB.

Bytes: the same slice out of a local Hub that counts the bytes of files that it sends.

Memory: VmHWM of the process that slices, which is a fresh one each time.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from benchmarks import common
from nemotron_rl.checkpoint.geometries import preset_config
from nemotron_rl.checkpoint.ranged.folder import FolderSource
from nemotron_rl.checkpoint.selection import select_config
from nemotron_rl.checkpoint.slice_plan import plan_slice
from nemotron_rl.checkpoint.slicing import slice_checkpoint
from nemotron_rl.checkpoint.tensor_table import tensor_table
from nemotron_rl.checkpoint.writer import ShardWriter, plan_shards, write_json
from tests.checkpoint.hub import serving

PRESET = "nano-30b-a3b"
DEPTH = 14
LAYERS = (0, 1, 5, 6)
GB = 1_000_000_000
SHARD_BYTES = GB
EXPERTS = {"1 GB": 2, "8 GB": 60}
"""Experts per MoE layer that make a checkpoint of this size."""
QUICK_EXPERTS = {"0.1 GB": 2, "0.2 GB": 8}
QUICK_SIZES = {"hidden_size": 448, "moe_intermediate_size": 928, "moe_shared_expert_intermediate_size": 928}
MOST_MEMORY = 600_000_000
MOST_GROWTH = 1.1
LEAST_SPEED = 0.8
MOST_FETCHED = 1.02


@dataclass(frozen=True)
class Sliced:
    """One slice, as the process that made it saw it."""

    seconds: float
    cpu_seconds: float
    """Of user and kernel: other programs on the machine make it wait longer, not work longer."""
    peak_bytes: int


def main() -> int:
    """Measure everything and write the result."""
    arguments = _arguments()
    options = common.options_of(arguments)  # now, because the working tree may change meanwhile
    with tempfile.TemporaryDirectory(prefix="slice-benchmark-", dir=arguments.folder) as made:
        figures, goals = measure(Path(made), arguments.quick, arguments.rounds)
    return common.finish(options, "slice", common.cpu(), figures, goals)


def _arguments() -> argparse.Namespace:
    parser = common.parser(__doc__)
    parser.add_argument("--folder", type=Path, help="where the checkpoints are made; needs 15 GB; by default in /tmp")
    parser.add_argument("--rounds", type=int, default=7)
    return parser.parse_args()


def measure(work: Path, quick: bool, rounds: int) -> tuple[dict[str, common.Figure], dict[str, common.Goal]]:
    """Make the checkpoints in `work` and slice them from the folder and from the Hub."""
    figures: dict[str, common.Figure] = {}
    goals: dict[str, common.Goal] = {}
    peaks: list[int] = []
    sizes = QUICK_EXPERTS if quick else EXPERTS
    for label, experts in sizes.items():
        source = make_checkpoint(work / label.replace(" ", ""), experts, quick)
        local = slice_apart(str(source), work / "slice")
        peaks.append(local.peak_bytes)
        figures |= {
            f"checkpoint of {label}": _bytes(size_of(source)),
            f"slice of {label}": _bytes(size_of(work / "slice")),
            f"memory for {label}": _bytes(local.peak_bytes),
        }
        goals[f"memory for {label}"] = common.at_most(local.peak_bytes, MOST_MEMORY)
        if label == list(sizes)[-1]:
            measure_speed(source, work, common.LEAST_ROUNDS if quick else rounds, figures, goals)
            measure_hub(source, work, figures, goals)
        shutil.rmtree(work / "slice")
        shutil.rmtree(source)
    goals["growth of memory"] = common.at_most(max(peaks) / min(peaks), MOST_GROWTH)
    return figures, goals


def measure_speed(
    source: Path, work: Path, rounds: int, figures: dict[str, common.Figure], goals: dict[str, common.Goal]
) -> None:
    """The slice against cp of the slice, which lies in `work` already."""
    nbytes = size_of(work / "slice")
    cpu: dict[str, list[float]] = {"slice": [], "cp": []}

    def run_slice() -> float:
        with settled(source, work / "again"):
            done = slice_apart(str(source), work / "again")
        cpu["slice"].append(done.cpu_seconds)
        return done.seconds

    def run_cp() -> float:
        copy = common.timed(lambda: subprocess.run(["cp", "-r", work / "slice", work / "again"], check=True))
        with settled(work / "slice", work / "again"):
            before = _cpu_seconds(resource.RUSAGE_CHILDREN)
            seconds = copy()
            cpu["cp"].append(_cpu_seconds(resource.RUSAGE_CHILDREN) - before)
        return seconds

    pair = common.alternate(run_slice, run_cp, rounds)
    figures |= {
        "slice from a folder": common.figure([nbytes / seconds for seconds in pair.ours], "B/s"),
        "cp": common.figure([nbytes / seconds for seconds in pair.reference], "B/s"),
        "CPU time of the slice": common.figure(cpu["slice"], "s"),
        "CPU time of cp": common.figure(cpu["cp"], "s"),
    }
    goals["speed of slice / speed of cp"] = common.at_least(1 / pair.ratio, LEAST_SPEED)


def measure_hub(source: Path, work: Path, figures: dict[str, common.Figure], goals: dict[str, common.Goal]) -> None:
    """The same slice out of a Hub in this process, which counts what it sends."""
    plan = plan_slice(FolderSource(source), LAYERS, source_name="plan")
    with serving(source) as hub:
        remote = slice_apart(hub.url, work / "remote")
        sent = hub.bytes_sent
    overhead = headers_of(source)
    subprocess.run(["diff", "-r", "--exclude=nemotron_rl_slice.json", work / "slice", work / "remote"], check=True)
    shutil.rmtree(work / "remote")
    figures |= {
        "bytes needed": _bytes(plan.fetch.needed),
        "config, index and headers": _bytes(overhead),
        "bytes sent by the hub": _bytes(sent),
        "slice from the hub": common.figure([plan.fetch.needed / remote.seconds], "B/s"),
        "memory from the hub": _bytes(remote.peak_bytes),
    }
    fetched = (sent - overhead) / plan.fetch.needed
    goals["bytes sent less headers / bytes needed"] = common.at_most(fetched, MOST_FETCHED)
    goals["memory from the hub"] = common.at_most(remote.peak_bytes, MOST_MEMORY)


def make_checkpoint(folder: Path, experts: int, quick: bool) -> Path:
    """A sharded checkpoint of `DEPTH` layers. Its values are one block of noise again and again: slices do not look."""
    sizes = {"n_routed_experts": experts, "num_experts_per_tok": min(experts, 6), "vocab_size": 8192}
    config = select_config(preset_config(PRESET, sizes | (QUICK_SIZES if quick else {})), range(DEPTH), "keep", PRESET)
    shards = plan_shards(tensor_table(config, PRESET), SHARD_BYTES // (10 if quick else 1))
    noise = memoryview(random.Random(0).randbytes(32 << 20))
    folder.mkdir()
    with ShardWriter(folder, shards) as writer:
        for tensor in (tensor for shard in shards for tensor in shard.tensors):
            writer.write(tensor.name, _repeated(noise, tensor.nbytes))
    write_json(folder / "config.json", config)
    return folder


def _repeated(block: memoryview, nbytes: int) -> Iterator[memoryview]:
    for start in range(0, nbytes, len(block)):
        yield block[: nbytes - start]


@contextmanager
def settled(read: Path, written: Path) -> Iterator[None]:
    """The same start for everybody: what will be read is in the page cache, and nothing waits to be written."""
    for file in read.iterdir():
        with file.open("rb", buffering=0) as opened:
            while opened.read(16 << 20):
                pass
    os.sync()
    time.sleep(0.2)
    yield
    shutil.rmtree(written)


def slice_apart(source: str, dst: Path) -> Sliced:
    """Slice in a fresh process; `source` is a folder or the address of a Hub."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
        return fresh.submit(_slice, source, dst).result()


def _slice(source: str, dst: Path) -> Sliced:
    """Runs in the fresh process."""
    from nemotron_rl.checkpoint.ranged.hub import HubSource  # its client takes a second to import: not counted

    is_hub = source.startswith("http://")
    place = HubSource("org/name", "main", endpoint=source, token="none") if is_hub else FolderSource(Path(source))
    began, cpu_before = time.perf_counter(), _cpu_seconds(resource.RUSAGE_SELF)
    slice_checkpoint(place, dst, LAYERS)
    seconds, cpu = time.perf_counter() - began, _cpu_seconds(resource.RUSAGE_SELF) - cpu_before
    place.close()
    return Sliced(seconds, cpu, peak_memory())


def _cpu_seconds(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def peak_memory() -> int:
    """VmHWM of this process in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def size_of(folder: Path) -> int:
    """Bytes of all files."""
    return sum(file.stat().st_size for file in folder.iterdir())


def headers_of(checkpoint: Path) -> int:
    """Bytes that have to be read before it is known what is needed: config, index, and every shard's header."""
    texts = [checkpoint / "config.json", checkpoint / "model.safetensors.index.json"]
    total = sum(file.stat().st_size for file in texts)
    for shard in checkpoint.glob("*.safetensors"):
        with shard.open("rb") as file:
            total += 8 + int.from_bytes(file.read(8), "little")
    return total


def _bytes(value: int) -> common.Figure:
    return common.Figure(value=value, unit="B")


if __name__ == "__main__":
    sys.exit(main())
