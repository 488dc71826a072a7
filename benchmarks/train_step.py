"""One GRPO update of our trainer against TRL's GRPOTrainer on CPU: same tiny model, samples, micro-batches, threads.

    make bench && .venv/bin/python -m benchmarks.train_step [--quick]

TRL runs its own training loop on transformers' own Nemotron-H model; only its rollout is replaced, by given samples
with advantages and log-probs before the update. Each side is a process of its own with all cores; they take turns.
Timed on both sides: forward, backward, clipping and AdamW, over all micro-batches of the update, in fp32, without MTP
head (transformers has none), gradient checkpointing or KL. Not timed: generation, rewards, logging, and log-probs
before the update, of which TRL needs none when every rollout gives one update; ours are a figure of their own. TRL also
computes the entropy that it logs; ours does not.

Loss and gradients of the first update are compared: DAPO's mean over tokens, where both clips bind at some tokens.

Tokens per second count prompts and responses, not padding. Shapes: `equal` has no padding at all; `unequal` has, and
TRL pads prompts and responses apart; `short` is what the tiny model's tasks are like. transformers 5.12.1 is wrong
beyond one Mamba chunk, so one chunk covers the longest sample. That costs it time: its speed with chunks of 16, where
its result is another one in the first two shapes, is a figure too.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

from benchmarks import common
from benchmarks.grpo_step import ours, reference
from benchmarks.grpo_step.side import Side
from benchmarks.grpo_step.work import Shape, Work, largest_difference, made_up_samples
from nemotron_rl.checkpoint.synth import synthesize

VOCABULARY = 512
SMALL_CHUNK = 16
"""That of the tiny model."""
SHAPES = {
    "equal": (Shape(32, prompt=(64, 64), response=(64, 64)), 8),
    "unequal": (Shape(32, prompt=(8, 64), response=(4, 64)), 8),
    "short": (Shape(128, prompt=(8, 11), response=(2, 5)), 32),
}
"""Name to the samples of an update, and how many of them a micro-batch has."""
QUICK = {"short": (Shape(32, prompt=(8, 11), response=(2, 5)), 16)}
SPEED, AGREEMENT = 2.0, 1e-4
Found = tuple[dict[str, common.Figure], dict[str, common.Goal]]


def main() -> int:
    options = common.parse(common.parser(__doc__))
    if find_spec("trl") is None:
        print("TRL is not installed; `make bench` installs it", file=sys.stderr)
        return 2
    figures: dict[str, common.Figure] = {}
    goals: dict[str, common.Goal] = {}
    for name, (shape, micro_batch_size) in (QUICK if options.quick else SHAPES).items():
        with tempfile.TemporaryDirectory() as scratch:
            more, wanted = measure(Path(scratch), shape, micro_batch_size)
        figures |= {f"{name}: {label}": figure for label, figure in more.items()}
        goals |= {f"{name}: {label}": goal for label, goal in wanted.items()}
    return common.finish(options, "train_step", common.cpu(), figures, goals)


def measure(scratch: Path, shape: Shape, micro_batch_size: int) -> Found:
    """One shape, with files in `scratch`."""
    start = scratch / "start"
    chunk = max(SMALL_CHUNK, shape.longest)
    synthesize("tiny", start, overrides={"chunk_size": chunk, "vocab_size": VOCABULARY})
    threads = len(os.sched_getaffinity(0))
    work = Work(start, made_up_samples(shape, VOCABULARY), micro_batch_size, threads)
    with Side(scratch / "ours.log", ours.serve, work, None) as mine:
        with Side(scratch / "trl.log", reference.serve, work, chunk) as theirs:
            pair = common.alternate(mine.seconds, theirs.seconds)
            figures, goals = compared(work, pair, mine, theirs)
        figures["ours, log-prob pass"] = common.figure([mine.seconds("logprobs") for _ in range(3)], "s")
    return figures | others(scratch, work, chunk), goals


def compared(work: Work, pair: common.Pair, mine: Side, theirs: Side) -> Found:
    """Speed, loss and gradients."""
    figures = {
        "ours": rate(work, pair.ours),
        "TRL": rate(work, pair.reference),
        "ours, update": pair.ours_figure("s"),
        "TRL, update": pair.reference_figure("s"),
        "ours, loss": common.figure([mine.first.loss], "1"),
        "TRL, loss": common.figure([theirs.first.loss], "1"),
    }
    goals = {
        "tokens per second against TRL": common.at_least(1 / pair.ratio, SPEED),
        "relative difference of the loss": common.at_most(abs(mine.first.loss / theirs.first.loss - 1), AGREEMENT),
        "largest relative difference of a gradient": common.at_most(
            largest_difference(mine.first.gradients, theirs.first.gradients), AGREEMENT
        ),
    }
    return figures, goals


def others(scratch: Path, work: Work, chunk: int) -> dict[str, common.Figure]:
    """Other ways to do the same on either side, in turn: our packed rows, and TRL with small chunks."""
    budget = work.micro_batch_size * max(len(one.prompt) + len(one.response) for one in work.samples)
    with ExitStack() as stack:
        packed = stack.enter_context(Side(scratch / "packed.log", ours.serve, work, budget))
        if chunk == SMALL_CHUNK:
            return {"ours, packed": rate(work, [packed.seconds() for _ in range(common.LEAST_ROUNDS)])}
        small = stack.enter_context(Side(scratch / "small.log", reference.serve, work, SMALL_CHUNK))
        pair = common.alternate(packed.seconds, small.seconds)
    return {
        "ours, packed": rate(work, pair.ours),
        f"TRL, chunks of {SMALL_CHUNK} (another result)": rate(work, pair.reference),
    }


def rate(work: Work, seconds: Sequence[float]) -> common.Figure:
    """Tokens per second; padding is none."""
    return common.figure([work.tokens / one for one in seconds], "tokens/s")


if __name__ == "__main__":
    sys.exit(main())
