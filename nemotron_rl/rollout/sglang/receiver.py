"""Runs inside SGLang's scheduler, as its custom weight loader: copies weights in and takes their digests.

An exception here would end the engine, and its parent with it, so every failure is an answer: the trainer raises it.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nemotron_rl.ops.digest import digests
from nemotron_rl.rollout.sglang.held import Held, held_tensors
from nemotron_rl.rollout.sglang.message import ANSWER, BUFFER, DIGESTS, ORDER, Answer, HeldSpec, Order, from_bytes

_STATE = "_nemotron_rl_weights"
_POISON = 0xFF
"""Every byte of a poisoned weight: a NaN in bf16 and fp32 alike."""


@dataclass
class _State:
    """What this rank's engine remembers between orders."""

    held: dict[str, Held]
    kept: list[tuple[Held, Tensor]]
    """Copies that `again` makes, the trainer's views included."""


@torch.no_grad()
def receive(model: Any, named_tensors: Sequence[tuple[str, Tensor]]) -> None:
    """Carry out the order among `named_tensors`; see `message.Order`."""
    given = dict(named_tensors)
    try:
        answer = _carry_out(model, Order.model_validate_json(from_bytes(given[ORDER])), given)
    except Exception:  # the trainer raises it; see above
        answer = Answer(error=traceback.format_exc(limit=-4)[-4000:])
    text = torch.frombuffer(bytearray(answer.model_dump_json().encode()), dtype=torch.uint8)
    if len(text) >= len(given[ANSWER]):
        text = torch.frombuffer(
            bytearray(Answer(error="the answer is too long").model_dump_json().encode()), dtype=torch.uint8
        )
    given[ANSWER][: len(text)].copy_(text)
    given[ANSWER][len(text) :].zero_()
    if given[ANSWER].is_cuda:
        torch.cuda.synchronize()


def _carry_out(model: Any, order: Order, given: dict[str, Tensor]) -> Answer:
    state = _state(model)
    buffers = [tensor for name, tensor in sorted(given.items()) if name.startswith(BUFFER)]
    match order.do:
        case "describe":
            return Answer(held=tuple(_described(name, held) for name, held in state.held.items()))
        case "poison":
            for held in state.held.values():
                held.view.view(torch.uint8).fill_(_POISON)
            return Answer(copied=len(state.held))
        case "load":
            pairs = [(state.held[view.name], view.of(buffers)) for view in order.views]
            if order.keep:
                state.kept = pairs
            return Answer(copied=_copy(pairs))
        case "again":
            return Answer(copied=_copy(state.kept))
        case "digest":
            given[DIGESTS].copy_(digests([held.view for held in state.held.values()]))
            return Answer(copied=len(state.held))
        case "read":
            order.views[0].of(buffers).copy_(state.held[order.views[0].name].view)
            return Answer(copied=1)


def _state(model: Any) -> _State:
    state: _State | None = getattr(model, _STATE, None)
    if state is None:
        state = _State(held_tensors(model), [])
        setattr(model, _STATE, state)
    return state


def _copy(pairs: Sequence[tuple[Held, Tensor]]) -> int:
    """Copy each tensor into its place, those of one kind in one batched call."""
    alike: dict[tuple[torch.dtype, torch.dtype], tuple[list[Tensor], list[Tensor]]] = {}
    for held, source in pairs:
        if held.view.numel() != source.numel():
            raise ValueError(f"a tensor of shape {tuple(source.shape)} came for one of {tuple(held.view.shape)}")
        target = held.view.view(source.shape)  # a source may be strided, and have its strides in more dimensions
        if held.transform == "minus_exp":
            target.copy_(-torch.exp(source.float()))
            continue
        targets, sources = alike.setdefault((target.dtype, source.dtype), ([], []))
        targets.append(target)
        sources.append(source)
    for targets, sources in alike.values():
        torch._foreach_copy_(targets, sources)
    return len(pairs)


def _described(name: str, held: Held) -> HeldSpec:
    view = held.view
    return HeldSpec(
        name=name, shape=tuple(view.shape), dtype=str(view.dtype).removeprefix("torch."), transform=held.transform
    )
