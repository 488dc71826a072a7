"""Tokens per second through our engine class against the same SGLang engine driven directly, in one run.

python -m benchmarks.rollout [--num-experts 64]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch.distributed as dist

from benchmarks import colocated, common
from nemotron_rl.config.rollout import SamplingSettings
from nemotron_rl.rollout.engine import GenerateRequest
from nemotron_rl.rollout.sglang.engine import SglangEngine
from nemotron_rl.sync.colocated import ColocatedSync

BATCHES = (1, 8, 64, 256)
PROMPT, NEW = 128, 128


def main() -> int:
    parser = common.parser(__doc__)
    parser.add_argument("--num-experts", type=int, default=64)
    parser.add_argument("--vocab-size", type=int, default=131072)
    parser.add_argument("--memory-fraction", type=float, default=0.4)
    arguments = parser.parse_args()
    options = common.options_of(arguments)
    ranks = colocated.join()
    folder = Path(tempfile.gettempdir()) / "nemotron-rl-rollout"
    specs = colocated.model_folder(
        folder, {"n_routed_experts": arguments.num_experts, "vocab_size": arguments.vocab_size}
    )
    new = 16 if options.quick else NEW
    with colocated.start_engine(folder, ranks, arguments.memory_fraction, max(BATCHES)) as engine:
        ColocatedSync(colocated.MadeUpWeights(specs, ranks), engine).push(0)
        pairs = {batch: compare(engine, batch, new, arguments.vocab_size) for batch in BATCHES}
    figures: dict[str, common.Figure] = {}
    goals: dict[str, common.Goal] = {}
    for batch, pair in pairs.items():
        figures[f"ours, batch {batch}"] = pair.ours_figure("tokens/s")
        figures[f"SGLang directly, batch {batch}"] = pair.reference_figure("tokens/s")
        goals[f"ours against SGLang directly, batch {batch}"] = common.at_least(pair.ratio, 0.97)
    code = common.finish(options, "rollout", common.gpu(ranks), figures, goals)
    dist.destroy_process_group()
    return code


def compare(engine: SglangEngine, batch: int, new: int, vocab_size: int) -> common.Pair:
    """Tokens per second of `batch` requests at once, log-probs included on both sides."""
    prompts = [[(7 * row + 3 * place) % (vocab_size - 10) + 5 for place in range(PROMPT)] for row in range(batch)]
    requests = [GenerateRequest(tuple(prompt), seed=row) for row, prompt in enumerate(prompts)]
    sampling = SamplingSettings(max_new_tokens=new)
    direct = {"temperature": 1.0, "max_new_tokens": new}

    def rate(act: Callable[[], list[int]]) -> Callable[[], float]:
        def measured() -> float:
            started = time.perf_counter()
            lengths = act()
            return sum(lengths) / (time.perf_counter() - started)

        return measured

    ours = rate(lambda: [len(one.tokens) for one in engine.generate(requests, sampling)])
    theirs = rate(
        lambda: [
            len(one["output_ids"])
            for one in engine.backend.generate(input_ids=prompts, sampling_params=direct, return_logprob=True)
        ]
    )
    ours(), theirs()
    # A small batch ends soon, and its single measurements scatter more.
    return common.alternate(ours, theirs, rounds=5 if batch >= 64 else 15)


if __name__ == "__main__":
    sys.exit(main())
