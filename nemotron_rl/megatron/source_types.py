"""Every parameter of a model in the narrowest type that holds its source tensors exactly.

Megatron gives all parameters one type. Converted through that, the few fp32 tensors of a bf16 checkpoint would be
rounded; converted in fp32 throughout, all others would take twice their room.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn

from nemotron_rl.checkpoint.tensor_table import TensorSpec
from nemotron_rl.errors import CheckpointError
from nemotron_rl.megatron.model import MegatronModel

TORCH_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
"""The types that a trainer's checkpoint can have, by safetensors code."""
_EXPERT = re.compile(r"\.local_experts\.\d+\.|(?<=\.weight)\d+$")


def check_types(specs: Iterable[TensorSpec], where: object) -> None:
    """Refuse tensors of types that no parameter has.

    Raises:
        CheckpointError: A tensor is of another type, as in a quantized checkpoint.
    """
    other = [spec for spec in specs if spec.dtype not in TORCH_DTYPES]
    if other:
        raise CheckpointError(
            f"{where} has {len(other)} tensors that are not {', '.join(TORCH_DTYPES)}; the first is {other[0].name} "
            f"({other[0].dtype}). Quantized checkpoints cannot be converted: use the BF16 one."
        )


def main_type(specs: Iterable[TensorSpec]) -> Literal["fp32", "bf16"]:
    """The type to build a model of these tensors in: bf16 when most of their bytes are, else fp32."""
    nbytes: dict[str, int] = defaultdict(int)
    for spec in specs:
        nbytes[spec.dtype] += spec.nbytes
    return "bf16" if nbytes["BF16"] * 2 > sum(nbytes.values()) else "fp32"


def match_source_types(model: MegatronModel, specs: Iterable[TensorSpec], where: object) -> None:
    """Give every parameter its exact type, and check that parameters and tensors cover each other; a collective call.

    Experts of one layer have one type, whichever rank holds them. Buffers keep theirs: the expert bias is fp32.

    Raises:
        CheckpointError: A parameter has no tensor, or a tensor no parameter; names both.
    """
    sources = {spec.name: spec for spec in specs}
    # AutoBridge.get_conversion_tasks (0.6.2) refuses a bridge that was made of a config, what it calls does not.
    planned = model.bridge._model_bridge.build_conversion_tasks(model.bridge.hf_pretrained, list(model.chunks))
    tasks = [task for task in planned if task is not None]
    names = _of_all_ranks({task.global_param_name: _hf_names(task.mapping.hf_param) for task in tasks})
    _check_cover(names, sources, where)
    exact = _exact_types(names, sources)
    for task in tasks:
        if isinstance(task.param_weight, nn.Parameter):
            task.param_weight.data = task.param_weight.data.to(exact[_group(task.global_param_name)])


def _hf_names(hf_param: Any) -> tuple[str, ...]:
    """The source tensors of one parameter: one, or several that it holds together, as q, k and v."""
    return (hf_param,) if isinstance(hf_param, str) else tuple(hf_param.values())


def _group(parameter: str) -> str:
    """The parameter's name without the number of its expert."""
    return _EXPERT.sub("*", parameter)


def _of_all_ranks(names: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The parameters of all ranks: each knows all pipeline stages', but only its own experts."""
    gathered: list[Mapping[str, tuple[str, ...]]] = [{}] * dist.get_world_size()
    dist.all_gather_object(gathered, dict(names))
    return {name: tensors for part in gathered for name, tensors in part.items()}


def _check_cover(names: Mapping[str, tuple[str, ...]], sources: Mapping[str, TensorSpec], where: object) -> None:
    needed = {tensor for tensors in names.values() for tensor in tensors}
    missing, unused = sorted(needed - sources.keys()), sorted(sources.keys() - needed)
    said = [
        f"{len(group)} {what}: {', '.join(group[:3])}{', …' if len(group) > 3 else ''}"
        for group, what in (
            (missing, "tensors that the model of its config needs are not there"),
            (unused, "tensors have no place in that model"),
        )
        if group
    ]
    if said:
        raise CheckpointError(f"{where} cannot be converted without loss: " + "; ".join(said))


def _exact_types(names: Mapping[str, tuple[str, ...]], sources: Mapping[str, TensorSpec]) -> dict[str, torch.dtype]:
    codes: dict[str, set[str]] = defaultdict(set)
    for parameter, tensors in names.items():
        codes[_group(parameter)].update(sources[tensor].dtype for tensor in tensors)
    return {
        group: TORCH_DTYPES[next(iter(found))] if len(found) == 1 else torch.float32 for group, found in codes.items()
    }
