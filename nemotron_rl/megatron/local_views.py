"""This rank's own parameters under their Hugging Face names, as views: what a sync can read where it lies.

Without tensor, pipeline and context parallelism every checkpoint tensor of the rank is a strided part of one parameter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from nemotron_rl.errors import InputError
from nemotron_rl.megatron.model import MegatronModel


def local_views(model: MegatronModel) -> dict[str, Tensor]:
    """View by checkpoint name of every weight that lies on this rank, its own experts only under expert parallelism.

    A view of a query, key or value matrix has the shape [KV groups, heads, head size, hidden size]; all others have the
    checkpoint's. They follow the parameters' values for as long as these are not moved.

    Raises:
        InputError: when the model is split over tensor- or pipeline-parallel ranks.
    """
    config = model.config
    if config.tensor_model_parallel_size > 1 or config.pipeline_model_parallel_size > 1:
        raise InputError("weights can be read in place at parallel.tp = parallel.pp = 1 only")
    # The public way to the tasks wants a folder with weights, which a converted start does not have.
    tasks = model.bridge._model_bridge.build_conversion_tasks(model.bridge.hf_pretrained, model.unwrapped())
    views: dict[str, Tensor] = {}
    for task in tasks:
        if task is not None and task.param_weight is not None:
            views.update(_named(task.mapping.hf_param, task.param_weight.detach(), config))
    return views


def _named(names: Any, weight: Tensor, config: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(names, str):
        yield names, weight
        return
    # Megatron interleaves: each group has its query heads, then its key and its value head.
    groups, size = config.num_query_groups, config.kv_channels
    heads = config.num_attention_heads // groups
    grouped = weight.view(groups, heads + 2, size, weight.shape[-1])
    yield names["q"], grouped[:, :heads]
    yield names["k"], grouped[:, heads : heads + 1]
    yield names["v"], grouped[:, heads + 1 :]
