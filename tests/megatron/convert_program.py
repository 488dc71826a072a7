"""Run under torchrun by the tests beside it: converts and exports at one split over ranks after another.

python -m torch.distributed.run --nproc-per-node N tests/megatron/convert_program.py STEPS.json, whose rows are
[action, split, source, destination]. Actions are those of ACTIONS; `refuse` is an export that must fail and
whose error becomes the destination; the split is a key of SPLITS.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nemotron_rl.config.model import ModelSettings, ParallelSettings
from nemotron_rl.megatron import backend

SPLITS: dict[str, dict[str, int]] = {"whole": {}, "tp2": {"tp": 2}, "pp2": {"pp": 2}, "ep2": {"ep": 2}}


def main() -> None:
    backend.activate("cpu")
    import torch.distributed as dist

    dist.init_process_group("gloo")
    for action, split, source, destination in json.loads(Path(sys.argv[1]).read_text()):
        start = time.perf_counter()
        with split_over_ranks(split) as parallel:
            ACTIONS[action](Path(source), Path(destination), parallel)
        if dist.get_rank() == 0:
            print(f"{action} {split} {time.perf_counter() - start:.1f} s", flush=True)
    dist.destroy_process_group()


@contextmanager
def split_over_ranks(split: str) -> Iterator[ParallelSettings]:
    """What `process.model_parallel` does, but for the process group, which is used again."""
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

    parallel = ParallelSettings(world_size=int(os.environ["WORLD_SIZE"]), **SPLITS[split])
    parallel_state.initialize_model_parallel(
        parallel.tp, parallel.pp, expert_model_parallel_size=parallel.ep, expert_tensor_parallel_size=1
    )
    model_parallel_cuda_manual_seed(1)
    try:
        yield parallel
    finally:
        parallel_state.destroy_model_parallel()


def convert(source: Path, destination: Path, parallel: ParallelSettings) -> None:
    import torch.distributed as dist

    from nemotron_rl.checkpoint.companions import carry_over
    from nemotron_rl.checkpoint.converted import write_source_tensors
    from nemotron_rl.megatron import torch_dist
    from nemotron_rl.megatron.model import exact_model

    model = exact_model(source, ModelSettings(), parallel)
    if dist.get_rank() == 0:
        destination.mkdir()
        carry_over(source, destination)
        write_source_tensors(source, destination)
    dist.barrier()
    torch_dist.save(destination, model.unwrapped())


def export(source: Path, destination: Path, parallel: ParallelSettings) -> None:
    from nemotron_rl.megatron.export import export_checkpoint
    from nemotron_rl.megatron.model import exact_model
    from nemotron_rl.megatron.weights import exported_weights

    model = exact_model(source, ModelSettings(), parallel)
    export_checkpoint(exported_weights(model), source, destination, shard_size=500_000)


def export_trainer(source: Path, destination: Path, parallel: ParallelSettings) -> None:
    """An export of the model that a trainer loads, all in fp32."""
    from nemotron_rl.megatron.export import export_checkpoint
    from nemotron_rl.megatron.model import build_model
    from nemotron_rl.megatron.weights import exported_weights

    model = build_model(source, ModelSettings(dtype="fp32"), parallel, trainable=False)
    export_checkpoint(exported_weights(model), source, destination)


def refuse(source: Path, destination: Path, parallel: ParallelSettings) -> None:
    import torch.distributed as dist

    from nemotron_rl.errors import CheckpointError

    try:
        export(source, destination, parallel)
    except CheckpointError as error:  # on every rank, or the others would wait in a collective for ever
        if dist.get_rank() == 0:
            destination.write_text(str(error))
    else:
        raise AssertionError(f"{source} was exported")


ACTIONS = {"convert": convert, "export": export, "export_trainer": export_trainer, "refuse": refuse}

if __name__ == "__main__":
    main()
