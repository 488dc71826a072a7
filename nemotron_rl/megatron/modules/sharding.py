"""How a local module's parameters appear in a distributed checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from megatron.core.transformer.utils import make_sharded_tensors_for_checkpoint
from torch import distributed as dist
from torch import nn


def sharded_parameters(
    module: nn.Module,
    prefix: str,
    sharded_offsets: tuple[Any, ...],
    metadata: Mapping[str, Any] | None,
    *,
    split: Mapping[str, int],
    tp_group: dist.ProcessGroup,
) -> dict[str, Any]:
    """The module's `sharded_state_dict`; `split` gives the dimension over which TP splits a parameter, if it does.

    Raises:
        ValueError: without metadata, which names the group that shares replicated tensors.
    """
    if metadata is None:
        raise ValueError(f"{type(module).__name__} needs metadata with dp_cp_group for a distributed checkpoint")
    sharded: dict[str, Any] = make_sharded_tensors_for_checkpoint(
        module.state_dict(prefix="", keep_vars=True),
        prefix,
        dict(split),
        sharded_offsets,
        tp_group=tp_group,
        dp_cp_group=metadata["dp_cp_group"],
    )
    return sharded
