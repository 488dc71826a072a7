"""The engine's side of a sync on a CPU: the receiver itself, with a module in SGLang's place."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from nemotron_rl.errors import WeightMismatch
from nemotron_rl.rollout.sglang.message import ANSWER, BUFFER, DIGESTS, ORDER, Answer, Order, from_bytes, to_bytes
from nemotron_rl.rollout.sglang.receiver import receive


class EngineSide:
    """Hands orders to the receiver as SGLang does, and forgets the handles of an order after it."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.version: int | None = None
        self.orders: list[str] = []

    def order(self, order: Order, buffers: Sequence[Tensor] = (), digests: Tensor | None = None) -> Answer:
        self.orders.append(order.do)
        answer = torch.zeros(1 << 20, dtype=torch.uint8)
        named = [(ORDER, to_bytes(order.model_dump_json(), "cpu")), (ANSWER, answer)]
        named += [(f"{BUFFER}.{i:06d}", buffer) for i, buffer in enumerate(buffers)]
        named += [(DIGESTS, digests)] if digests is not None else []
        receive(self.model, named)
        said = Answer.model_validate_json(from_bytes(answer))
        if said.error:
            raise WeightMismatch(said.error)
        return said
