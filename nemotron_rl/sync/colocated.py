"""Weights from a trainer to an SGLang engine on the same GPUs: the engine copies them out of the trainer's own memory.

The first push sends handles of the trainer's parameters through CUDA IPC, with a plan that says which part of which
parameter is which checkpoint tensor. The engine keeps both, so that a later push is one order and a few batched copies
on the device. Both sides then digest every tensor where it lies (ops/digest.py).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from nemotron_rl.errors import WeightMismatch
from nemotron_rl.ops.digest import digests
from nemotron_rl.rollout.sglang.held import as_held
from nemotron_rl.rollout.sglang.message import BUFFER, DIGESTS, Answer, HeldSpec, Order, ViewSpec
from nemotron_rl.sync.push import SyncProof, first_difference

_MTP = "mtp."


class WeightSource(Protocol):
    """What a trainer gives to a sync."""

    def weights(self) -> Iterable[tuple[str, Tensor]]:
        """(checkpoint name, full tensor) of every weight: the export, which the first push is proved against."""
        ...

    def local_views(self) -> Mapping[str, Tensor]:
        """The same weights as views of this rank's parameters; see `megatron.local_views`."""
        ...


class OrderedEngine(Protocol):
    """An engine that carries out orders about its weights; see `SglangEngine.order`."""

    version: int | None
    """Weights that it has; None when they are undefined."""

    def order(self, order: Order, **tensors: Tensor | Sequence[Tensor]) -> Answer:
        """Carry out one order with tensors that both sides see."""
        ...


class ColocatedSync:
    """Pushes one trainer's weights to the engine of its group; every method is a collective call."""

    def __init__(self, source: WeightSource, engine: OrderedEngine) -> None:
        self._source, self._engine = source, engine
        self._held: dict[str, HeldSpec] = {}
        self._views: dict[str, Tensor] = {}

    def push(self, version: int) -> SyncProof:
        """Replace the engine's weights by the trainer's and compare digests taken on both sides.

        The first push also overwrites all of the engine's weights with NaNs before, and is proved against the export
        instead of the views that were copied: a wrong plan cannot agree with itself.

        Raises:
            WeightMismatch: naming the version, the first tensor that is missing, unknown or different, and the index.
        """
        started = time.perf_counter()
        first = not self._held
        if first:
            self._agree_on_names(version)
            self._engine.order(Order(do="poison"))
            self._load_and_keep()
        else:
            self._engine.order(Order(do="again"))
        copied = time.perf_counter()
        if first:
            self._prove(version, self._source.weights, together=1)  # an exported tensor is valid until the next
        else:
            self._prove(version, self._views.items, together=len(self._views))
        self._engine.version = version
        return SyncProof(
            version,
            len(self._held),
            0,
            sum(view.nbytes for view in self._views.values()),
            transfer_s=copied - started,
            proof_s=time.perf_counter() - copied,
        )

    def _agree_on_names(self, version: int) -> None:
        held = {spec.name: spec for spec in self._engine.order(Order(do="describe")).held}
        views = dict(self._source.local_views())
        unsent = held.keys() - views.keys()
        unheld = {name for name in views.keys() - held.keys() if not name.startswith(_MTP)}
        for names, what in ((unheld, "have no place in the engine"), (unsent, "are held but were not sent")):
            if names:
                raise WeightMismatch(
                    f"weight version {version}: {len(names)} tensors {what}; the first is {min(names)}"
                )
        for name, spec in held.items():
            if views[name].numel() != torch.Size(spec.shape).numel():
                raise WeightMismatch(
                    f"weight version {version}: {name} has shape {tuple(views[name].shape)}, held as {spec.shape}"
                )
        self._held, self._views = held, {name: views[name] for name in held}

    @property
    def _device(self) -> torch.device:
        return next(iter(self._views.values())).device

    def _load_and_keep(self) -> None:
        buffers, specs = as_buffers(self._views)
        self._engine.order(Order(do="load", views=specs, keep=True), **{BUFFER: buffers})

    def _prove(self, version: int, sent: Callable[[], Iterable[tuple[str, Tensor]]], together: int) -> None:
        """`sent` is called once, and once more to say where a tensor differs."""
        theirs_N = torch.zeros(len(self._held), dtype=torch.int64, device=self._device)
        self._engine.order(Order(do="digest"), **{DIGESTS: theirs_N})
        ours = dict(self._digested(sent(), together))
        differing = [n for n, held in zip(self._held, theirs_N.tolist(), strict=True) if ours.get(n) != held]
        if differing:
            name = differing[0]
            tensor = next((t for n, t in sent() if n == name), None)
            where = (
                "was not exported"
                if tensor is None
                else first_difference(self._as_held(name, tensor), self._read(name))
            )
            raise WeightMismatch(
                f"weight version {version}: {len(differing)} of {len(self._held)} tensors differ between trainer and "
                f"engine; {name} {where}"
            )

    def _digested(self, sent: Iterable[tuple[str, Tensor]], together: int) -> Iterator[tuple[str, int]]:
        """Digests of the tensors that the engine holds, as it holds them, `together` at a time."""
        mine = ((name, tensor) for name, tensor in sent if name in self._held)
        while batch := list(itertools.islice(mine, together)):
            as_held_N = [self._as_held(name, tensor) for name, tensor in batch]
            yield from zip((name for name, _ in batch), digests(as_held_N).tolist(), strict=True)

    def _as_held(self, name: str, tensor: Tensor) -> Tensor:
        spec = self._held[name]
        return as_held(tensor, getattr(torch, spec.dtype), spec.transform).reshape(spec.shape)

    def _read(self, name: str) -> Tensor:
        """One tensor as the engine holds it, copied to this process."""
        spec = self._held[name]
        copy = torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device=self._device)
        buffers, specs = as_buffers({name: copy})
        self._engine.order(Order(do="read", views=specs), **{BUFFER: buffers})
        return copy


def as_buffers(views: Mapping[str, Tensor]) -> tuple[list[Tensor], tuple[ViewSpec, ...]]:
    """The storages under the views, each once and whole, and where each view lies in them."""
    buffers: list[Tensor] = []
    place: dict[tuple[int, torch.dtype], int] = {}
    specs = []
    for name, view in views.items():
        key = (view.untyped_storage().data_ptr(), view.dtype)
        if key not in place:
            place[key] = len(buffers)
            buffers.append(_whole_storage(view))
        specs.append(
            ViewSpec(
                name=name,
                buffer=place[key],
                offset=view.storage_offset(),
                shape=tuple(view.shape),
                stride=view.stride(),
            )
        )
    return buffers, tuple(specs)


def _whole_storage(view: Tensor) -> Tensor:
    size = view.untyped_storage().nbytes() // view.element_size()
    return torch.as_strided(view, (size,), (1,), 0)
