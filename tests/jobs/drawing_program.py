"""Run by the test beside it: the prompts that steps draw on 1 and 2 replicas, as JSON.

python -m tests.jobs.drawing_program CASES.json OUT.json
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nemotron_rl.config.model import ModelSettings, ParallelSettings
from nemotron_rl.megatron import backend
from tests.megatron import gang

REPLICAS = (1, 2)


def main() -> None:
    backend.activate("cpu")
    import nemotron_rl.jobs.drawing  # noqa: F401  once, in the parent

    cases, out = Path(sys.argv[1]), Path(sys.argv[2])
    for replicas in REPLICAS:
        gang.run_gang(replicas, partial(rank, cases, out.with_suffix(f".{replicas}")))


def rank(cases: Path, out: Path) -> None:
    from nemotron_rl.megatron import process

    parallel = ParallelSettings(world_size=int(os.environ["WORLD_SIZE"]))
    with process.model_parallel(ModelSettings(), parallel, seed=1):
        seen = [steps_of(case) for case in json.loads(cases.read_text())]
        if process.is_first_rank():
            out.write_text(json.dumps(seen))


def steps_of(case: dict[str, Any]) -> list[dict[str, Any]]:
    """What each step drew of {n, batch, seed, rounds, parts, steps, informative}."""
    from nemotron_rl.data.sampler import PromptSampler
    from nemotron_rl.jobs.drawing import draw
    from nemotron_rl.megatron import process
    from nemotron_rl.rl.batch import TokenSequence
    from nemotron_rl.rollout.collect import Sample

    def collect(indices: Sequence[int]) -> list[Sample]:
        return [
            Sample(i, TokenSequence((i,), (k,)), "", float(i in case["informative"] and k), "stop")
            for i in indices
            for k in range(2)
        ]

    sampler, seen = PromptSampler(case["n"], case["batch"], case["seed"]), []
    for _ in range(case["steps"]):
        drawn = draw(sampler, collect, case["rounds"], case["parts"])
        mine = [sample.prompt_index for sample in drawn.samples]
        seen.append(
            {
                "prompts": process.gathered_over_dp(mine[::2]),
                "whole": mine[::2] == mine[1::2] and [s.sequence.response[0] for s in drawn.samples[:2]] == [0, 1],
                "per_replica": process.gathered_over_dp([len(mine)]),
                "generated": sorted(process.gathered_over_dp([s.prompt_index for s in drawn.everything[::2]])),
                "position": sampler.position,
                "metrics": drawn.metrics,
            }
        )
    return seen


if __name__ == "__main__":
    main()
