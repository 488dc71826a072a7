"""The engine's expert choices in the trainer's forward pass, and what counts as load of an expert.

Megatron asks `router.router_replay` for the experts of each token, and computes gate weights and gradients from its own
current scores. Its own RouterReplay (megatron-core 0.19.2) is not used: it needs experts for every token, also for
padding and a response's last token, which have no record; and it keeps one list of all routers in the process, those of
the MTP head among them. Here a trunk's router has an object of its own, and a token without record routes itself. The
MTP head has no records. Where the sets agree the router's own order is kept, so that replaying what it would have
chosen changes no bit.

T tokens of one router call: this rank's, sequence-major · R rows · s tokens of a row · M MoE layers · E experts
K experts per token
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.transformer.moe.router import TopKRouter
from torch import Tensor

from nemotron_rl.errors import NemotronRLError
from nemotron_rl.megatron.micro_batch import MicroBatch
from nemotron_rl.rl.routes import NO_ROUTE, changed_routes


@dataclass
class _Call:
    """What one router needs to know of one micro-batch."""

    routes_TK: Tensor | None
    padding_T: Tensor
    counted: bool = False


@dataclass
class RoutingReplay:
    """The routers of one rank's model, told before each micro-batch what it is."""

    routers: Sequence[RouterReplay]
    """Those of the trunk in the order of layers, then those of the MTP head."""
    layers: Sequence[int]
    """Which of the trunk's MoE layers this rank has, counted over all pipeline stages."""
    updated: Sequence[Any] | None = None
    """Megatron's routers whose expert bias moves in an update, of the trunk and of the MTP head; None: it is frozen."""

    def biases(self) -> Tensor | None:
        """A copy of all expert biases of this rank that updates move, fp32 [M * E]; None where they are frozen."""
        if self.updated is None:
            return None
        return torch.cat([torch.zeros(0), *(router.expert_bias.detach().flatten().cpu() for router in self.updated)])

    def start_pass(self, *, backward: bool) -> None:
        """Forget the last pass; `backward`: gradients follow, and perhaps recomputation."""
        for router in self.routers:
            router.backward, router.changed, router.replayed = backward, 0, 0
            router.pending.clear()

    def start(self, micro_batch: MicroBatch) -> None:
        """The model computes this next.

        Raises:
            NemotronRLError: its routes are of another number of layers than this model's.
        """
        routes_TMK = _for_routers(micro_batch.routes_RsMK, micro_batch)
        padding_T = _for_routers(micro_batch.padding_Rs, micro_batch)
        assert padding_T is not None
        if routes_TMK is not None and routes_TMK.shape[1] != len(self.layers):
            raise NemotronRLError(
                f"the routes are of {routes_TMK.shape[1]} MoE layers, the model has {len(self.layers)}"
            )
        for place, router in enumerate(self.routers):
            in_trunk = place < len(self.layers)
            routes_TK = routes_TMK[:, place] if routes_TMK is not None and in_trunk else None
            router.current = _Call(routes_TK, padding_T)

    def counts(self) -> Tensor:
        """Of the routes (tokens times layers) of the last pass: those chosen otherwise, and all; int64 [2]."""
        pairs = [(int(router.changed), int(router.replayed)) for router in self.routers]
        return torch.tensor([[0, 0], *pairs]).sum(0)


def _for_routers(values_Rs: Tensor | None, micro_batch: MicroBatch) -> Tensor | None:
    """[R, s, ...] as a router sees its tokens: sequence-major, and this rank's part under sequence parallelism."""
    if values_Rs is None:
        return None
    values_sR = values_Rs.transpose(0, 1)
    if micro_batch.grid.tp > 1:
        values_sR = values_sR.chunk(micro_batch.grid.tp)[parallel_state.get_tensor_model_parallel_rank()]
    return values_sR.flatten(0, 1).to(micro_batch.source_RS.device)


@dataclass
class RouterReplay:
    """In the place of megatron's object of that name, for one router."""

    layer_number: int | None = None
    """Set by megatron."""
    current: _Call | None = None
    backward: bool = False
    pending: deque[_Call] = field(default_factory=deque)
    """Calls that ran without gradient in an update, and will be computed again in its backward pass, first in first out
    as pipelines go through micro-batches."""
    changed: int | Tensor = 0
    """Of the pass's replayed routes, those that the trainer would have chosen otherwise."""
    replayed: int | Tensor = 0
    running: _Call | None = None
    """Of the call under way."""

    def get_replay_topk(
        self,
        scores: Tensor,
        topk: int,
        num_groups: int | None = None,
        group_topk: int | None = None,
        default_compute_topk: Callable[..., tuple[Tensor, Tensor]] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """(scores, experts) [T, K] of the recorded experts, or of the router's own where there are none."""
        assert default_compute_topk is not None
        values_TK, own_TK = default_compute_topk(scores, topk, num_groups=num_groups, group_topk=group_topk)
        self.running = call = self._call()
        if call is None or call.routes_TK is None:
            return values_TK, own_TK
        recorded_TK = call.routes_TK.long()
        if recorded_TK.shape != own_TK.shape:
            raise NemotronRLError(
                f"routes are of {list(recorded_TK.shape)} [tokens, experts], not {list(own_TK.shape)}"
            )
        known_T = recorded_TK[:, 0] != NO_ROUTE
        changed_T = known_T & changed_routes(own_TK, recorded_TK)
        if not call.counted:
            self.changed, self.replayed = self.changed + changed_T.sum(), self.replayed + known_T.sum()
            call.counted = True
        chosen_TK = torch.where(changed_T[:, None], recorded_TK, own_TK)
        return scores.gather(1, chosen_TK), chosen_TK

    def _call(self) -> _Call | None:
        """The micro-batch of this call: the next of those that wait for it when it is a recomputation."""
        if self.backward and torch.is_grad_enabled() and self.pending:
            return self.pending.popleft()
        if self.backward and not torch.is_grad_enabled() and self.current is not None:
            self.pending.append(self.current)
        return self.current

    def discount_padding(self, router: Any, _: Any, output: tuple[Tensor, Tensor]) -> None:
        """A forward hook of the router: megatron counts padding as load of its experts; it is none."""
        if self.running is not None and torch.is_grad_enabled():
            routing_map_TE = output[1]
            router.local_tokens_per_expert -= (routing_map_TE & self.running.padding_T[:, None]).sum(0)


def attach(hybrids: Sequence[Any], pattern: str, *, expert_bias_frozen: bool) -> RoutingReplay:
    """Give every router of these HybridModels its object; `pattern` has the trunk's block types, E for MoE.

    Raises:
        AttributeError: megatron's routers are not those of 0.19.2 any more.
    """
    moe_layers = [layer for layer, kind in enumerate(pattern, start=1) if kind == "E"]
    trunk = [router for hybrid in hybrids for router in _routers(hybrid.decoder)]
    head = [router for hybrid in hybrids for router in _routers(getattr(hybrid, "mtp", None))]
    replays = []
    for router in (*trunk, *head):
        for name in ("router_replay", "frozen_expert_bias", "local_tokens_per_expert"):
            if not hasattr(router, name):
                raise AttributeError(f"megatron's TopKRouter has no {name} any more")
        if router.config.moe_router_fusion:
            raise ValueError("moe_router_fusion would pass by the replayed routes; it must be off")
        router.router_replay = replay = RouterReplay(router.layer_number)
        router.frozen_expert_bias = expert_bias_frozen
        if not expert_bias_frozen:
            router.register_forward_hook(replay.discount_padding)
        replays.append(replay)
    layers = [moe_layers.index(router.layer_number) for router in trunk]
    return RoutingReplay(replays, layers, None if expert_bias_frozen else (*trunk, *head))


def _routers(module: Any) -> list[Any]:
    return [] if module is None else [one for one in module.modules() if isinstance(one, TopKRouter)]
