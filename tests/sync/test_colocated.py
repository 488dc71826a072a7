"""Pushes through orders: the code of both sides, with a module in the engine's place; see rollout/sglang/mimic.py."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from nemotron_rl.errors import WeightMismatch
from nemotron_rl.rollout.reference.load import folder_weights
from nemotron_rl.rollout.sglang.held import held_tensors
from nemotron_rl.rollout.sglang.message import ANSWER, BUFFER, DIGESTS, ORDER, Answer, Order, from_bytes, to_bytes
from nemotron_rl.rollout.sglang.receiver import receive
from nemotron_rl.sync.colocated import ColocatedSync, as_buffers
from tests.rollout.sglang.mimic import mimic

Q, K, V = (f"backbone.layers.2.mixer.{part}_proj.weight" for part in "qkv")


class Trainer:
    """Weights of a checkpoint; query, key and value interleaved in one parameter as Megatron has them."""

    def __init__(self, checkpoint: Path) -> None:
        config = json.loads((checkpoint / "config.json").read_text())
        self.parameters = {name: tensor.clone() for name, tensor in folder_weights(checkpoint)}
        groups, size = config["num_key_value_heads"], config["head_dim"]
        q, k, v = (self.parameters.pop(name).view(groups, -1, size, config["hidden_size"]) for name in (Q, K, V))
        self.qkv, self.heads = torch.cat([q, k, v], 1), q.shape[1]

    def local_views(self) -> dict[str, Tensor]:
        parts = self.qkv[:, : self.heads], self.qkv[:, self.heads : -1], self.qkv[:, -1:]
        return self.parameters | dict(zip((Q, K, V), parts, strict=True))

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        for name, view in self.local_views().items():
            yield name, view.reshape(-1, view.shape[-1]) if view.dim() == 4 else view

    def step(self) -> None:
        for tensor in (*self.parameters.values(), self.qkv):
            tensor.mul_(1.5)


class EngineSide:
    """Hands orders to the receiver as SGLang does, and forgets the handles of an order after it."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.version = model, None
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


@pytest.fixture
def trainer(four_layers: Path) -> Trainer:
    return Trainer(four_layers)


@pytest.fixture
def engine(four_layers: Path) -> EngineSide:
    return EngineSide(mimic(json.loads((four_layers / "config.json").read_text())))


def test_the_engine_gets_every_weight_and_later_pushes_send_no_handles(trainer: Trainer, engine: EngineSide) -> None:
    sync = ColocatedSync(trainer, engine)
    for version in range(3):
        proof = sync.push(version)
        assert proof.tensors == len(held_tensors(engine.model))
        held = held_tensors(engine.model)
        sent = dict(trainer.weights())
        for name, one in held.items():
            wanted = -sent[name].float().exp() if name.endswith("A_log") else sent[name]
            assert torch.equal(one.view, wanted.reshape(one.view.shape).to(one.view.dtype)), name
        trainer.step()
    assert engine.orders == ["describe", "poison", "load", "again", "again"]


@pytest.mark.parametrize(
    "name", ["backbone.layers.1.mixer.experts.3.up_proj.weight", K, "backbone.layers.0.mixer.A_log"]
)
@pytest.mark.parametrize("version", [0, 1])
def test_a_changed_element_is_found_and_located(trainer: Trainer, engine: EngineSide, name: str, version: int) -> None:
    class Hit(EngineSide):
        """An engine whose memory is hit between the copies of one version and their digests."""

        def order(self, order: Order, buffers: Sequence[Tensor] = (), digests: Tensor | None = None) -> Answer:
            if digests is None:
                return super().order(order, buffers)
            super().order(order, buffers)
            if order.do == ("load", "again")[version]:
                held_tensors(self.model)[name].view.view(-1)[1] += 1
            return super().order(Order(do="digest"), digests=digests)

    sync = ColocatedSync(trainer, Hit(engine.model))
    with pytest.raises(WeightMismatch, match=rf"weight version {version}: 1 of .*{name} first differs at \[") as caught:
        for push in range(version + 1):
            sync.push(push)
    assert "1 elements differ" in str(caught.value)


def test_a_wrong_plan_cannot_agree_with_itself(trainer: Trainer, engine: EngineSide) -> None:
    class Swapped(Trainer):
        def local_views(self) -> dict[str, Tensor]:
            views = super().local_views()
            views[K], views[V] = views[V], views[K]
            return views

    trainer.__class__ = Swapped
    export = Trainer.local_views(trainer)
    trainer.weights = lambda: ((n, v.reshape(-1, v.shape[-1]) if v.dim() == 4 else v) for n, v in export.items())  # type: ignore[method-assign]
    with pytest.raises(WeightMismatch, match=rf"2 of .*{K} first differs"):
        ColocatedSync(trainer, engine).push(0)


def test_missing_unknown_and_misshapen_tensors_are_errors(trainer: Trainer, engine: EngineSide) -> None:
    name = "backbone.norm_f.weight"
    tensor = trainer.parameters.pop(name)
    with pytest.raises(WeightMismatch, match=f"held but were not sent; the first is {name}"):
        ColocatedSync(trainer, engine).push(0)
    trainer.parameters |= {name: tensor, "backbone.extra": tensor}
    with pytest.raises(WeightMismatch, match=r"no place in the engine; the first is backbone\.extra"):
        ColocatedSync(trainer, engine).push(0)
    del trainer.parameters["backbone.extra"]
    trainer.parameters[name] = tensor[1:]
    with pytest.raises(WeightMismatch, match=rf"{name} has shape"):
        ColocatedSync(trainer, engine).push(0)


def test_what_fails_in_the_engine_is_raised_in_the_trainer(trainer: Trainer, engine: EngineSide) -> None:
    with pytest.raises(WeightMismatch, match="IndexError"):
        engine.order(Order(do="read"))


def test_poison_leaves_nothing_finite(engine: EngineSide) -> None:
    engine.order(Order(do="poison"))
    assert all(held.view.isnan().all() for held in held_tensors(engine.model).values())


def test_buffers_are_whole_storages_each_once() -> None:
    base = torch.arange(24.0).reshape(2, 3, 4)
    views = {"a": base[:, 1], "b": base[1:], "c": torch.ones(2)}
    buffers, specs = as_buffers(views)
    assert [len(buffer) for buffer in buffers] == [24, 2]
    assert all(torch.equal(spec.of(buffers), views[spec.name]) for spec in specs)
