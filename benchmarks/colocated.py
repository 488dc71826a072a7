"""What the benchmarks of an SGLang engine share: a process group, an engine on some Ultra layers, weights for it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from nemotron_rl.checkpoint.geometries import preset_config
from nemotron_rl.checkpoint.layout import CONFIG_FILE
from nemotron_rl.checkpoint.selection import select_config
from nemotron_rl.checkpoint.tensor_table import TensorSpec, tensor_table
from nemotron_rl.checkpoint.writer import write_json
from nemotron_rl.config.rollout import SglangSettings
from nemotron_rl.rollout.sglang.engine import SglangEngine
from nemotron_rl.sync.placed import Placed

LAYERS = (0, 1, 7, 8)
_DTYPES = {"BF16": torch.bfloat16, "F32": torch.float32}


def join() -> int:
    """Join torchrun's process group, or one of this process alone; the world size."""
    alone = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29531"}
    if "RANK" not in os.environ:
        os.environ.update(alone)
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl")
    return dist.get_world_size()


def model_folder(folder: Path, overrides: Mapping[str, int]) -> list[TensorSpec]:
    """config.json of scaled Ultra layers 0,1,7,8 in `folder`; the tensors that an engine without MTP head holds."""
    config = select_config(preset_config("ultra-550b-a55b", overrides), LAYERS, "keep", "benchmark")
    folder.mkdir(parents=True, exist_ok=True)
    if dist.get_rank() == 0:
        write_json(folder / CONFIG_FILE, config)
    dist.barrier()
    return [spec for spec in tensor_table(config) if not spec.name.startswith("mtp.")]


def start_engine(folder: Path, gpus: int, memory_fraction: float, max_running: int) -> SglangEngine:
    """An engine over `gpus` ranks, without weights."""
    settings = SglangSettings(
        gpus_per_engine=gpus, memory_fraction=memory_fraction, max_running_requests=max_running, cuda_graphs=True
    )
    return SglangEngine.beside_trainer(folder, (), settings, seed=0)


class MadeUpWeights:
    """A rank's weights on its GPU: everything but the experts of other ranks."""

    def __init__(self, specs: list[TensorSpec], ranks: int, displaced: bool = False) -> None:
        """Experts lie on the rank whose engine holds them or, `displaced`, on the one before."""
        generator = torch.Generator("cuda").manual_seed(1)
        self._specs, self._ranks, self._displaced = specs, ranks, displaced
        self._experts = max(_expert(spec.name) for spec in specs) + 1
        self._tensors: dict[str, Tensor] = {}
        for spec in specs:
            if self._owner(spec.name) in (None, dist.get_rank()):
                tensor = torch.empty(spec.shape, dtype=_DTYPES[spec.dtype], device="cuda")
                self._tensors[spec.name] = tensor.normal_(0, 0.02, generator=generator)

    def step(self) -> None:
        """Other values, as an optimizer would make."""
        torch._foreach_mul_(list(self._tensors.values()), 1.01)
        torch.cuda.synchronize()

    def local_views(self) -> list[Placed]:
        """See sync.colocated.WeightSource."""
        return [Placed.whole(name, tensor) for name, tensor in self._tensors.items()]

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """See sync.colocated.WeightSource; without displacement no rank needs the experts of another."""
        if not self._displaced:
            yield from self._tensors.items()
            return
        for spec in self._specs:
            tensor = self._tensors.get(spec.name)
            if tensor is None:
                tensor = torch.empty(spec.shape, dtype=_DTYPES[spec.dtype], device="cuda")
            owner = self._owner(spec.name)
            if owner is not None:
                dist.broadcast(tensor, src=owner)
            yield spec.name, tensor

    def _owner(self, name: str) -> int | None:
        """The rank that alone has a tensor; None for what all have."""
        expert = _expert(name)
        return None if expert < 0 else (expert * self._ranks // self._experts - self._displaced) % self._ranks


def _expert(name: str) -> int:
    """The number of the expert that a tensor belongs to, -1 when there is none."""
    return int(name.split(".experts.")[1].split(".")[0]) if ".experts." in name else -1
