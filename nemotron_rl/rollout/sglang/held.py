"""SGLang 0.5.16's NemotronH parameters, seen under the checkpoint's names. Runs inside the engine's process.

The engine fuses and renames: query, key and value lie in one matrix, the experts of a layer in one tensor, `A_log` is
kept as A = -exp(A_log), and the vocabulary is padded. With an attention tensor-parallel size of 1 every checkpoint
tensor, or a rank's part of it, is a contiguous part of one parameter, so all weights can be copied, checked and
compared through these views.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

_ROUTED = re.compile(r"^(?P<block>.*\.experts)\.(?P<part>w13|w2)_weight$")
_PARTS = {"w13": "up_proj", "w2": "down_proj"}


@dataclass(frozen=True)
class Held:
    """A checkpoint tensor, or a box of one, as the engine holds it."""

    name: str
    """The checkpoint's tensor."""
    view: Tensor
    """A part of the engine's own parameter, with as many dimensions as the checkpoint's tensor; writing to it changes
    the engine."""
    transform: Literal["same", "minus_exp"] = "same"
    """`minus_exp`: the view holds -exp of the checkpoint's tensor."""
    start: tuple[int, ...] | None = None
    """Where the box begins in each dimension of the checkpoint's tensor; its size is the view's. None is the whole."""

    @property
    def key(self) -> str:
        """Tells it apart from everything else that the rank holds: the name, with the start where that is not whole."""
        return self.name if self.start is None else f"{self.name}@{','.join(map(str, self.start))}"


def held_tensors(model: Any) -> dict[str, Held]:
    """What a NemotronHForCausalLM holds of the checkpoint's tensors, by key and sorted by it.

    Raises:
        ValueError: when a parameter cannot be told apart into checkpoint tensors: another SGLang, or attention TP > 1.
    """
    modules = dict(model.named_modules())
    found: dict[str, Held] = {}
    for name, parameter in model.named_parameters():
        for held in _parts(name, parameter.detach(), modules, model.config):
            if held.key in found:
                raise ValueError(f"SGLang's parameters give {held.key} twice; the second is {name}")
            found[held.key] = held
    return dict(sorted(found.items()))


def _parts(name: str, tensor: Tensor, modules: Mapping[str, Any], config: Any) -> Iterator[Held]:
    ours = checkpoint_name(name)
    routed = _ROUTED.match(ours)
    if routed:
        yield from _experts(routed, tensor, modules[name.rpartition(".")[0]])
    elif name.endswith(".qkv_proj.weight"):
        yield from _query_key_value(ours, tensor, modules[name.removesuffix(".qkv_proj.weight")])
    elif name.endswith(".A"):
        yield Held(ours.removesuffix(".A") + ".A_log", tensor, "minus_exp")
    elif name in ("model.embed_tokens.weight", "lm_head.weight"):
        yield Held(ours, _whole(name, tensor, config.vocab_size))
    else:
        yield Held(ours, tensor, start=_start(tensor, modules[name.rpartition(".")[0]]))


def _experts(routed: re.Match[str], tensor: Tensor, module: Any) -> Iterator[Held]:
    first = module.moe_ep_rank * module.num_local_experts
    for place, expert in enumerate(tensor):
        yield Held(f"{routed['block']}.{first + place}.{_PARTS[routed['part']]}.weight", expert)


def _query_key_value(ours: str, tensor: Tensor, attention: Any) -> Iterator[Held]:
    if attention.num_heads != attention.total_num_heads:
        raise ValueError(
            f"{ours} is split over attention TP; only an attention TP of 1 can be seen as checkpoint tensors"
        )
    sizes = [attention.q_size, attention.kv_size, attention.kv_size]
    for part, rows in zip("qkv", tensor.split(sizes), strict=True):
        yield Held(ours.replace("qkv_proj", f"{part}_proj"), rows)


def _start(tensor: Tensor, module: Any) -> tuple[int, ...] | None:
    """What a column- or row-parallel linear of the engine holds; shared experts are split although attention is not."""
    if getattr(module, "tp_size", 1) == 1:
        return None
    dim = 1 if hasattr(module, "input_size_per_partition") else 0
    return tuple(module.tp_rank * size if place == dim else 0 for place, size in enumerate(tensor.shape))


def _whole(name: str, tensor: Tensor, vocab_size: int) -> Tensor:
    if len(tensor) < vocab_size:
        raise ValueError(f"{name} has {len(tensor)} of {vocab_size} rows: split over TP; give the engine dp attention")
    return tensor[:vocab_size]


def checkpoint_name(name: str) -> str:
    """The engine's parameter name with the checkpoint's prefix and embedding."""
    return name.replace("model.embed_tokens", "backbone.embeddings").replace("model.", "backbone.", 1)


def box(tensor: Tensor, start: Sequence[int] | None, shape: Sequence[int]) -> Tensor:
    """The box of a checkpoint's tensor that begins at `start`, a view; None is the whole.

    Raises:
        ValueError: when the tensor has another number of dimensions.
    """
    if start is None:
        return tensor
    for dim, (first, size, _) in enumerate(zip(start, shape, tensor.shape, strict=True)):
        tensor = tensor.narrow(dim, first, size)
    return tensor


def as_held(tensor: Tensor, dtype: torch.dtype, transform: str) -> Tensor:
    """The checkpoint's tensor as the engine holds it, for a comparison of bits."""
    value = -torch.exp(tensor.float()) if transform == "minus_exp" else tensor
    return value.to(dtype)
