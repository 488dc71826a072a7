"""Pushes through orders: the code of both sides, with a module in the engine's place; see rollout/sglang/mimic.py."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from nemotron_rl.errors import WeightMismatch
from nemotron_rl.rollout.reference.load import folder_weights
from nemotron_rl.rollout.sglang.held import held_tensors
from nemotron_rl.rollout.sglang.message import Answer, Order, Place
from nemotron_rl.sync.box import Box
from nemotron_rl.sync.colocated import ColocatedSync
from nemotron_rl.sync.handles import as_buffers
from nemotron_rl.sync.placed import Placed
from tests.rollout.sglang.mimic import mimic
from tests.sync.engine_side import EngineSide

Q, K, V = (f"backbone.layers.2.mixer.{part}_proj.weight" for part in "qkv")


class Trainer:
    """Weights of a checkpoint; query, key and value interleaved in one parameter as Megatron has them."""

    def __init__(self, checkpoint: Path) -> None:
        config = json.loads((checkpoint / "config.json").read_text())
        self.parameters = {name: tensor.clone() for name, tensor in folder_weights(checkpoint)}
        groups, size = config["num_key_value_heads"], config["head_dim"]
        q, k, v = (self.parameters.pop(name).view(groups, -1, size, config["hidden_size"]) for name in (Q, K, V))
        self.qkv, self.heads = torch.cat([q, k, v], 1), q.shape[1]

    def local_views(self) -> list[Placed]:
        return [Placed.whole(name, tensor) for name, tensor in self.parameters.items()] + list(self.attention())

    def attention(self) -> Iterator[Placed]:
        """Each KV group's rows of query, key and value."""
        for group, rows in enumerate(self.qkv):
            parts = rows[: self.heads], rows[self.heads : -1], rows[-1:]
            for name, part in zip((Q, K, V), parts, strict=True):
                view = part.flatten(0, 1)
                yield Placed(name, Box((group * len(view), 0), tuple(view.shape)), view)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        yield from self.parameters.items()
        for name in (Q, K, V):
            yield name, torch.cat([placed.view for placed in self.attention() if placed.name == name])

    def step(self) -> None:
        for tensor in (*self.parameters.values(), self.qkv):
            tensor.mul_(1.5)


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
    assert engine.orders == ["describe", "watch", "poison", "load", "again", "again"]


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
        def local_views(self) -> list[Placed]:
            other = {K: V, V: K}
            return [replace(placed, name=other.get(placed.name, placed.name)) for placed in super().local_views()]

    trainer.__class__ = Swapped
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
    placed = [(Place(key=key, shape=tuple(view.shape)), view) for key, view in views.items()]
    buffers, specs = as_buffers(placed)
    assert [len(buffer) for buffer in buffers] == [24, 2]
    assert all(torch.equal(spec.of(buffers), views[spec.key]) for spec in specs)


def test_digests_must_be_taken_of_all_that_is_held(engine: EngineSide) -> None:
    held = held_tensors(engine.model).values()
    places = [Place(key=one.key, shape=tuple(one.view.shape)) for one in held]
    with pytest.raises(WeightMismatch, match="elements would be looked at"):
        engine.order(Order(do="watch", places=tuple(places[1:])))
