"""This rank's own parameters as boxes of Hugging Face tensors: what a sync can read where it lies, at any split.

megatron-core cuts a parameter along one dimension over tensor-parallel ranks. Some parameters consist of segments each
of which is cut by itself (Mamba's z, x, B, C and dt), and query, key and value heads are interleaved before the cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from megatron.bridge.models.conversion.param_mapping import (
    AutoMapping,
    ColumnParallelMapping,
    MambaConv1dMapping,
    MambaInProjMapping,
    QKVMapping,
    ReplicatedMapping,
    RowParallelMapping,
)
from torch import Tensor

from nemotron_rl.megatron.cuts import Rows, cut_heads, cut_segments
from nemotron_rl.megatron.model import MegatronModel
from nemotron_rl.sync.box import Box
from nemotron_rl.sync.placed import Placed


def local_views(model: MegatronModel) -> list[Placed]:
    """Every part of every weight that lies on this rank, its own experts only under expert parallelism.

    Raises:
        TypeError: megatron-bridge maps a parameter in a way that is not known here.
    """
    # The public way to the tasks wants a folder with weights, which a converted start does not have.
    tasks = model.bridge._model_bridge.build_conversion_tasks(model.bridge.hf_pretrained, model.unwrapped())
    return [
        placed
        for task in tasks
        if task is not None and task.param_weight is not None
        for placed in _placed(task.mapping, task.megatron_module, task.param_weight.detach(), model.config)
    ]


def _placed(mapping: Any, module: Any, weight: Tensor, config: Any) -> Iterator[Placed]:
    if isinstance(mapping, AutoMapping):  # chosen as the export chooses
        mapping = mapping._get_or_create_mapping(mapping._detect_parallelism_type(module))
    name, rank, ranks = mapping.hf_param, mapping.tp_rank, mapping.tp_size
    match mapping:
        case QKVMapping():
            queries = config.num_attention_heads // config.num_query_groups
            for rows in cut_heads(config.num_query_groups, queries, config.kv_channels, rank, ranks):
                yield _rows(name[rows.which], weight, rows)
        case MambaInProjMapping() | MambaConv1dMapping():
            inner = config.mamba_num_heads * config.mamba_head_dim
            states = config.mamba_state_dim * config.mamba_num_groups
            z_x_b_c_dt = [inner, inner, states, states, config.mamba_num_heads]
            widths = z_x_b_c_dt if isinstance(mapping, MambaInProjMapping) else z_x_b_c_dt[1:-1]
            for rows in cut_segments(widths, rank, ranks):
                yield _rows(name, weight, rows)
        case ReplicatedMapping():
            yield Placed.whole(name, weight)
        case ColumnParallelMapping():
            yield _share(name, weight, 0, rank)
        case RowParallelMapping():
            yield _share(name, weight, 1, rank)
        case _:
            raise TypeError(f"megatron-bridge maps {name} by a {type(mapping).__name__}; how is it cut?")


def _share(name: str, weight: Tensor, dimension: int, rank: int) -> Placed:
    start = [0] * weight.dim()
    start[dimension] = rank * weight.shape[dimension]
    return Placed(name, Box(tuple(start), tuple(weight.shape)), weight)


def _rows(name: str, weight: Tensor, rows: Rows) -> Placed:
    rest = tuple(weight.shape[1:])
    box = Box((rows.first, *(0 for _ in rest)), (rows.count, *rest))
    return Placed(name, box, weight.narrow(0, rows.place, rows.count))
