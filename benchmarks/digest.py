"""The digest that proves a weight sync, against reading and copying the same bytes, in turn in one run.

    python -m benchmarks.digest                    # on a GPU
    python -m benchmarks.digest --device cpu       # the plain torch version, small

One tensor of 0.1, 1 and 8 GB, and 8 GB in 40,000 tensors. A read is half a copy, as in `benchmarks.sync`; beside it the
sum of the same bytes as 64-bit numbers, which reads and does not write, and on a GPU a digest that mixes every word.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from benchmarks import common
from nemotron_rl.ops.digest import Digester

ROUNDS = 7
SMALL_BYTES = 8192
"""Every second of many tensors is a norm of this size."""
GB = 10**9


@dataclass(frozen=True)
class Case:
    """What is digested."""

    label: str
    nbytes: int
    tensors: int = 1
    bound: bool = False
    """Whether the goal holds here: the others are bound by what a launch costs."""


CASES = {
    "cuda": (
        Case("0.1 GB", GB // 10),
        Case("1 GB", GB, bound=True),
        Case("8 GB", 8 * GB, bound=True),
        Case("8 GB in 40,000 tensors", 8 * GB, 40_000, bound=True),
    ),
    "cpu": (Case("16 MB", 16 * 10**6), Case("16 MB in 400 tensors", 16 * 10**6, 400)),
}


def main() -> int:
    parser = common.parser(__doc__)
    parser.add_argument("--device", choices=sorted(CASES), default="cuda")
    arguments = parser.parse_args()
    options = common.options_of(arguments)
    device = common.gpu() if arguments.device == "cuda" else common.cpu()
    figures: dict[str, common.Figure] = {}
    goals: dict[str, common.Goal] = {}
    for case in CASES[arguments.device]:
        if options.quick and case.nbytes > GB:
            continue
        seconds = measure(case, torch.device(arguments.device), common.LEAST_ROUNDS if options.quick else ROUNDS)
        figures |= {f"{case.label}: {what}": common.figure(rounds, "s") for what, rounds in seconds.items()}
        figures[f"{case.label}: ours, rate"] = common.figure([case.nbytes / s / GB for s in seconds["ours"]], "GB/s")
        if case.bound:
            goals[f"{case.label}: digests of both sides against one read"] = common.at_most(both_sides(seconds), 2)
    return common.finish(options, "digest", device, figures, goals)


def both_sides(seconds: Mapping[str, Sequence[float]]) -> float:
    """The digests of trainer and engine over one read of the weights."""
    return 2 * median(seconds["ours"]) / (median(seconds["copy"]) / 2)


def measure(case: Case, device: torch.device, rounds: int) -> dict[str, list[float]]:
    """Seconds of each way, taken in turn; every second round in the opposite order."""
    ways = prepared(case, device)
    for act in ways.values():
        timed(act, device, 1)
    repeats = max(1, min(20, int(0.05 / max(timed(ways["sum"], device, 1), 1e-6))))
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in list(ways) if number % 2 == 0 else reversed(list(ways)):
            seconds[name].append(timed(ways[name], device, repeats))
    return seconds


def prepared(case: Case, device: torch.device) -> dict[str, Callable[[], object]]:
    """What is measured, over the same bytes."""
    buffer = torch.randint(-(1 << 62), 1 << 62, (case.nbytes // 8,), device=device)
    target = torch.empty_like(buffer)
    tensors = split(buffer, case.tensors)
    ways: dict[str, Callable[[], object]] = {
        "ours": Digester(tensors).run,
        "copy": lambda: target.copy_(buffer),
        "sum": buffer.sum,
    }
    if device.type == "cuda":
        from benchmarks import digest_murmur

        ways["every word mixed"] = digest_murmur.prepare([tensor.view(torch.int32) for tensor in tensors])
    return ways


def split(buffer: Tensor, count: int) -> list[Tensor]:
    """`count` tensors that fill the buffer: every second one small, as a norm's weight is."""
    if count == 1:
        return [buffer]
    small = SMALL_BYTES // buffer.element_size()
    large = len(buffer) * 2 // count - small
    places = list(itertools.accumulate(large if index % 2 else small for index in range(count - 1)))
    return list(buffer.tensor_split(places))


def timed(act: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Seconds per call of calls that follow each other, the device's work included."""
    finish(device)
    started = time.perf_counter()
    for _ in range(repeats):
        act()
    finish(device)
    return (time.perf_counter() - started) / repeats


def finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    sys.exit(main())
