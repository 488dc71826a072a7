"""Runs inside SGLang's scheduler, as its custom weight loader: copies weights in and takes their digests.

An exception here would end the engine, and its parent with it, so every failure is an answer: the trainer raises it.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from nemotron_rl.ops.digest import Digester
from nemotron_rl.rollout.sglang.copies import Copies
from nemotron_rl.rollout.sglang.held import Held, box, held_tensors
from nemotron_rl.rollout.sglang.message import (
    ANSWER,
    BUFFER,
    DIGESTS,
    ORDER,
    Answer,
    HeldSpec,
    Order,
    Place,
    from_bytes,
)

_STATE = "_nemotron_rl_weights"
_POISON = 0xFF
"""Every byte of a poisoned weight: a NaN in bf16 and fp32 alike."""


@dataclass
class _State:
    """What this rank's engine remembers between orders."""

    held: dict[str, Held]
    digester: Digester
    kept: dict[int, Copies] = field(default_factory=dict)
    """By slot the copies that `again` makes, the trainer's views included."""

    def at(self, place: Place) -> Held:
        """A part of what is held."""
        held = self.held[place.key]
        return replace(held, view=box(held.view, place.start, place.shape))

    def watch(self, places: Sequence[Place]) -> None:
        """Take digests of these from now on.

        Raises:
            ValueError: they are not all that is held.
        """
        views = [self.at(place).view for place in places]
        watched, whole = (sum(view.numel() for view in some) for some in (views, [h.view for h in self.held.values()]))
        if watched != whole:
            raise ValueError(f"{watched} of {whole} elements would be looked at")
        self.digester = Digester(views)
        self.kept.clear()


@torch.no_grad()
def receive(model: Any, named_tensors: Sequence[tuple[str, Tensor]]) -> None:
    """Carry out the order among `named_tensors`; see `message.Order`."""
    given = dict(named_tensors)
    try:
        answer = _carry_out(model, Order.model_validate_json(from_bytes(given[ORDER])), given)
    except Exception:  # the trainer raises it; see above
        answer = Answer(error=traceback.format_exc(limit=-4)[-4000:])
    _write(answer, given[ANSWER])


def _write(answer: Answer, memory: Tensor) -> None:
    data = bytearray(answer.model_dump_json(exclude_defaults=True).encode())
    if len(data) >= len(memory):
        data = bytearray(Answer(error=f"the answer has {len(data)} bytes").model_dump_json().encode())
    memory[: len(data)].copy_(torch.frombuffer(data, dtype=torch.uint8))
    memory[len(data)] = 0
    _finish(memory)


def _carry_out(model: Any, order: Order, given: dict[str, Tensor]) -> Answer:
    state = _state(model)
    buffers = [tensor for name, tensor in sorted(given.items()) if name.startswith(BUFFER)]
    match order.do:
        case "describe":
            return Answer(held=tuple(map(_described, state.held.values())))
        case "watch":
            state.watch(order.places)
            return Answer()
        case "poison":
            for held in state.held.values():
                held.view.view(torch.uint8).fill_(_POISON)
            return Answer(copied=len(state.held))
        case "load":
            copies = Copies.of((state.at(view), view.of(buffers)) for view in order.views)
            if order.keep:
                state.kept[order.slot] = copies
            return _copied(copies, state, given)
        case "again":
            return _copied(state.kept[order.slot], state, given)
        case "digest":
            return _copied(Copies(), state, given)
        case "read":
            order.views[0].of(buffers).copy_(state.at(order.views[0]).view)
            return Answer(copied=1)


def _copied(copies: Copies, state: _State, given: dict[str, Tensor]) -> Answer:
    """Copy, and digest when there is memory for digests."""
    load_s = _seconds(copies.run, given[ANSWER])
    digest_s = 0.0
    if DIGESTS in given:
        digest_s = _seconds(lambda: given[DIGESTS].copy_(state.digester.run()), given[ANSWER])
    return Answer(copied=len(copies), load_s=load_s, digest_s=digest_s)


def _seconds(act: Callable[[], object], where: Tensor) -> float:
    _finish(where)
    started = time.perf_counter()
    act()
    _finish(where)
    return time.perf_counter() - started


def _finish(where: Tensor) -> None:
    if where.is_cuda:
        torch.cuda.synchronize(where.device)


def _state(model: Any) -> _State:
    state: _State | None = getattr(model, _STATE, None)
    if state is None:
        held = held_tensors(model)
        state = _State(held, Digester([one.view for one in held.values()]))
        setattr(model, _STATE, state)
    return state


def _described(held: Held) -> HeldSpec:
    view = held.view
    return HeldSpec(
        name=held.name,
        key=held.key,
        shape=tuple(view.shape),
        dtype=str(view.dtype).removeprefix("torch."),
        transform=held.transform,
        start=held.start,
    )
