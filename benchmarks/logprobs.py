"""Peak memory of the log-prob pass: hidden states to log-probs in chunks, against log_softmax over whole logits.

    python -m benchmarks.logprobs [--quick]

Each measurement is a process of its own: its peak resident set (VmHWM) above what it held with the inputs in memory.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import common

if TYPE_CHECKING:
    from torch import Tensor

HIDDEN = 64
VOCABULARY, TOKENS = 131_072, 8_192
QUICK_VOCABULARY, QUICK_TOKENS = 32_768, 2_048
GOAL = 8.0
"""The naive pass should need at least so many times the memory."""
PASSES = ("forward", "forward_backward")


def main() -> int:
    parser = common.parser(__doc__)
    parser.add_argument(
        "--measure", nargs=4, metavar=("WHAT", "PASS", "VOCABULARY", "TOKENS"), help="one process's work"
    )
    arguments = parser.parse_args()
    if arguments.measure:
        what, passed, vocabulary, tokens = arguments.measure
        print(json.dumps(measure(what, passed, int(vocabulary), int(tokens))))
        return 0
    sizes = (QUICK_VOCABULARY, QUICK_TOKENS) if arguments.quick else (VOCABULARY, TOKENS)
    figures: dict[str, common.Figure] = {}
    goals: dict[str, common.Goal] = {}
    for passed in PASSES:
        seconds: dict[str, list[float]] = {"ours": [], "naive": []}
        pair = common.alternate(
            partial(_peak, "ours", passed, sizes, seconds["ours"]),
            partial(_peak, "naive", passed, sizes, seconds["naive"]),
        )
        figures[f"{passed}, ours"] = pair.ours_figure("B")
        figures[f"{passed}, naive"] = pair.reference_figure("B")
        for what, taken in seconds.items():
            figures[f"{passed}, {what}, time"] = common.figure(taken, "s")
        goals[f"{passed}: naive memory / ours"] = common.at_least(1 / pair.ratio, GOAL)
    return common.finish(common.options_of(arguments), "logprobs", common.cpu(), figures, goals)


def measure(what: str, passed: str, vocabulary: int, tokens: int) -> dict[str, float]:
    """Peak bytes above the inputs, and seconds, of one pass in this process."""
    import torch

    draw = torch.Generator().manual_seed(0)
    backward = passed == "forward_backward"
    hidden_NH = torch.randn(tokens, HIDDEN, generator=draw, requires_grad=backward)
    weight_VH = (torch.randn(vocabulary, HIDDEN, generator=draw) * HIDDEN**-0.5).requires_grad_(backward)
    token_N = torch.randint(vocabulary, (tokens,), generator=draw)
    _run(what, hidden_NH[:4], weight_VH[:64], token_N[:4] % 64, backward)  # loads the libraries
    hidden_NH.grad = weight_VH.grad = None
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    began = time.perf_counter()
    _run(what, hidden_NH, weight_VH, token_N, backward)
    return {"peak_bytes": _status("VmHWM") - before, "seconds": time.perf_counter() - began}


def _run(what: str, hidden_NH: Tensor, weight_VH: Tensor, token_N: Tensor, backward: bool) -> None:
    import torch

    from nemotron_rl.megatron.logprobs import token_logprobs

    if what == "ours":
        logprob_N = token_logprobs(hidden_NH, weight_VH, token_N).logprob_N
    else:
        logprob_N = torch.log_softmax(hidden_NH @ weight_VH.T, -1).gather(1, token_N[:, None]).squeeze(1)
    if backward:
        logprob_N.sum().backward()


def _status(name: str) -> int:
    """Bytes of a line of /proc/self/status."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def _peak(what: str, passed: str, sizes: tuple[int, int], seconds: list[float]) -> float:
    """Peak bytes of one measurement; its time is noted in `seconds`."""
    found = _in_own_process(what, passed, *sizes)
    seconds.append(found["seconds"])
    return found["peak_bytes"]


def _in_own_process(what: str, passed: str, vocabulary: int, tokens: int) -> dict[str, float]:
    argv = [sys.executable, "-m", "benchmarks.logprobs", "--measure", what, passed, str(vocabulary), str(tokens)]
    done = subprocess.run(argv, cwd=common.REPOSITORY, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    sys.exit(main())
