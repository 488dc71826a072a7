"""Weights that came from other ranks, for an engine that copies by order: SGLang beside this process, on its GPU.

What the trainer sent is proved in two steps: every tensor in the bucket has the digest that the trainer took of its
export, and every box that the engine holds afterwards has the digest of that box of the tensor in the bucket.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import torch
from torch import Tensor

from nemotron_rl.errors import WeightMismatch
from nemotron_rl.rollout.distant.calls import Compared, Receive
from nemotron_rl.rollout.distant.stream import WeightStream
from nemotron_rl.rollout.sglang.held import as_held
from nemotron_rl.rollout.sglang.message import HeldSpec, Order, Place
from nemotron_rl.sync.box import Box
from nemotron_rl.sync.checksums import DigestsByName
from nemotron_rl.sync.colocated import OrderedEngine
from nemotron_rl.sync.handles import as_buffers
from nemotron_rl.sync.push import first_difference


class OrderedHolder:
    """See `Holder`. Ranks of one engine give the same number of orders, whatever each of them holds."""

    def __init__(self, engine: OrderedEngine, device: torch.device) -> None:
        self._engine, self._device = engine, device
        self._held: dict[str, list[HeldSpec]] = {}
        self._keys: list[str] = []
        self._arrived = DigestsByName()
        """Of the tensors in the buckets, by name."""
        self._expected = DigestsByName()
        """Of their boxes as the engine should hold them, by key."""

    def take(self, call: Receive, stream: WeightStream) -> None:
        """See `Holder.take`."""
        self._arrived, self._expected = DigestsByName(), DigestsByName()
        if not self._held:
            self._prepare()
        if call.poison:
            self._engine.order(Order(do="poison"))
        for named in stream:
            self._arrived.add([name for name, _ in named], [tensor for _, tensor in named])
            boxes = [
                (spec, _box(spec, tensor, call.version)) for name, tensor in named for spec in self._held.get(name, [])
            ]
            self._expected.add([spec.key for spec, _ in boxes], [_as_held(spec, view) for spec, view in boxes])
            buffers, views = as_buffers([(_place(spec), view) for spec, view in boxes])
            self._engine.order(Order(do="load", views=views), buffers)

    def compare(self, version: int, sent: Mapping[str, str]) -> Compared:
        """See `Holder.compare`."""
        started = time.perf_counter()
        arrived, expected = self._arrived.result(), self._expected.result()
        unsent = self._held.keys() - arrived.keys()
        if unsent:
            raise WeightMismatch(
                f"weight version {version}: {len(unsent)} tensors are held but were not sent; the first is "
                f"{min(unsent)}"
            )
        theirs_N = torch.zeros(len(self._keys), dtype=torch.int64, device=self._device)
        self._engine.order(Order(do="digest"), digests=theirs_N)
        held = dict(zip(self._keys, theirs_N.tolist(), strict=True))
        differing = {name for name in sent.keys() | arrived.keys() if sent.get(name) != str(arrived.get(name))}
        differing |= {
            name for name, specs in self._held.items() if any(held[one.key] != expected[one.key] for one in specs)
        }
        self._engine.version = None if differing else version
        return Compared(frozenset(self._held), tuple(sorted(differing)), time.perf_counter() - started)

    def locate(self, name: str, sent: Tensor) -> str:
        """See `Holder.locate`. Also when this rank has no part of the tensor, it gives one order."""
        where = "changed on its way"
        specs = self._held.get(name, [])
        if not specs:
            self._engine.order(Order(do="digest"))
        for spec in specs:
            wanted = _as_held(spec, _box(spec, sent.to(self._device), 0))
            held = torch.empty_like(wanted)
            buffers, views = as_buffers([(_place(spec), held)])
            self._engine.order(Order(do="read", views=views), buffers)
            if not torch.equal(wanted, held):
                return first_difference(wanted, held, spec.start or ())
        return where

    def _prepare(self) -> None:
        """Ask once what the engine holds, and have it take digests of just that."""
        specs = self._engine.order(Order(do="describe")).held
        self._keys = [spec.key for spec in specs]
        for spec in specs:
            self._held.setdefault(spec.name, []).append(spec)
        self._engine.order(Order(do="watch", places=tuple(map(_place, specs))))


def _place(spec: HeldSpec) -> Place:
    return Place(key=spec.key, shape=spec.shape)


def _box(spec: HeldSpec, tensor: Tensor, version: int) -> Tensor:
    """The part of a checkpoint's tensor that the engine holds under this spec, a view.

    Raises:
        WeightMismatch: when the tensor has no such part.
    """
    wanted = Box(spec.start or (0,) * len(spec.shape), spec.shape)
    whole = Box.whole(tensor.shape)
    fits = len(wanted.size) == tensor.dim() and wanted.overlap(whole) == wanted
    if not fits or (spec.start is None and wanted != whole):
        raise WeightMismatch(
            f"weight version {version}: {spec.name} has shape {tuple(tensor.shape)}, held as {spec.shape}"
        )
    view: Tensor = wanted.of(tensor)
    return view


def _as_held(spec: HeldSpec, view: Tensor) -> Tensor:
    return as_held(view, getattr(torch, spec.dtype), spec.transform)
