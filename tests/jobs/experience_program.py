"""Run under torchrun by the test beside it: advantages and token weights of each rank's share, gathered, as JSON.

python -m torch.distributed.run --nproc-per-node N tests/jobs/experience_program.py REQUEST.json OUT.json
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from nemotron_rl.config.load import load_settings
from nemotron_rl.config.model import ModelSettings, ParallelSettings
from nemotron_rl.megatron import backend


def main(request: Path, out: Path) -> None:
    backend.activate("cpu")
    from nemotron_rl.megatron import process

    parallel = ParallelSettings(world_size=int(os.environ["WORLD_SIZE"]))
    with process.model_parallel(ModelSettings(), parallel, seed=1):
        seen = [observe(case) for case in json.loads(request.read_text())]
        if process.is_first_rank():
            out.write_text(json.dumps(seen))


def observe(case: dict[str, Any]) -> dict[str, list[float]]:
    """Of one case: {overrides, rewards, groups, lengths} of all ranks; a rank takes its consecutive share."""
    import torch

    from nemotron_rl.jobs.experience import advantages, mini_batch_weights
    from nemotron_rl.megatron import process
    from nemotron_rl.rl.batch import TokenSequence, make_batch
    from nemotron_rl.rl.shaping import informative_groups

    settings = load_settings("tiny", overrides=case["overrides"], environ={})
    everyone = list(zip(case["rewards"], case["groups"], case["lengths"], strict=True))
    samples = process.share_of_dp(everyone, settings.train.updates_per_rollout)
    rewards, groups, lengths = zip(*samples, strict=True)
    batch = make_batch([TokenSequence((1,), (2,) * length) for length in lengths], pad_token=0)
    reward_B, group_B = torch.tensor(rewards), torch.tensor(groups)
    keep_B = informative_groups(reward_B, group_B) if settings.algorithm.drop_equal_groups else torch.ones(len(samples))
    advantage_B = advantages(reward_B, group_B, keep_B, settings.algorithm)
    weight_BL = mini_batch_weights(batch.mask_BL, keep_B, settings)
    return {
        "advantages": process.gathered_over_dp(advantage_B.tolist()),
        "weight_sums": process.gathered_over_dp(weight_BL.sum(-1).tolist()),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
