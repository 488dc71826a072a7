"""Weights from a trainer to an SGLang engine on the same GPUs: the engine copies them out of the trainer's own memory.

The first push sends handles of the trainer's parameters through CUDA IPC, with a plan that says which part of which
parameter is which checkpoint tensor. The engine keeps both, so that a later push is one order and a few batched copies
on the device. Both sides then digest every tensor where it lies (ops/digest.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from nemotron_rl.errors import WeightMismatch
from nemotron_rl.ops.digest import Digester, digests
from nemotron_rl.rollout.sglang.held import as_held, box
from nemotron_rl.rollout.sglang.message import Answer, HeldSpec, Order, ViewSpec
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

    def order(self, order: Order, buffers: Sequence[Tensor] = (), digests: Tensor | None = None) -> Answer:
        """Carry out one order; buffers are what its views lie in, `digests` is filled in the order of names."""
        ...


class ColocatedSync:
    """Pushes one trainer's weights to the engine of its group; every method is a collective call."""

    def __init__(self, source: WeightSource, engine: OrderedEngine) -> None:
        self._source, self._engine = source, engine
        self._held: dict[str, HeldSpec] = {}
        self._views: dict[str, Tensor] = {}
        self._digester: Digester | None = None
        self._in_place: list[str] = []
        self._converted: list[str] = []

    def push(self, version: int) -> SyncProof:
        """Replace the engine's weights by the trainer's and compare digests taken on both sides.

        The first push also overwrites all of the engine's weights with NaNs before, and is proved against the export
        instead of the views that were copied: a wrong plan cannot agree with itself.

        Raises:
            WeightMismatch: naming the version, the first tensor that is missing, unknown or different, and the index.
        """
        self._finish()  # an optimizer step may still be running
        started = time.perf_counter()
        first = not self._held
        if first:
            self._agree_on_names(version)
            self._engine.order(Order(do="poison"))
        theirs_N = torch.zeros(len(self._held), dtype=torch.int64, device=self._device)
        if first:
            buffers, specs = as_buffers(self._views)
            answer = self._engine.order(Order(do="load", views=specs, keep=True), buffers, theirs_N)
        else:
            answer = self._engine.order(Order(do="again"), digests=theirs_N)
        received = time.perf_counter()
        ours = self._digests_of_export() if first else self._digests_of_views()
        self._compare(version, ours, theirs_N.tolist())
        self._engine.version = version
        return SyncProof(
            version,
            len(self._held),
            0,
            sum(view.nbytes for view in self._views.values()),
            transfer_s=received - started - answer.digest_s,
            proof_s=time.perf_counter() - received + answer.digest_s,
            load_s=answer.load_s,
        )

    def _agree_on_names(self, version: int) -> None:
        held = {spec.key: spec for spec in self._engine.order(Order(do="describe")).held}
        names_held = {spec.name for spec in held.values()}
        views = dict(self._source.local_views())
        unsent = names_held - views.keys()
        unheld = {name for name in views.keys() - names_held if not name.startswith(_MTP)}
        for names, what in ((unheld, "have no place in the engine"), (unsent, "are held but were not sent")):
            if names:
                raise WeightMismatch(
                    f"weight version {version}: {len(names)} tensors {what}; the first is {min(names)}"
                )
        views = {key: box(views[spec.name], spec.start, spec.shape) for key, spec in held.items()}
        for key, spec in held.items():
            if views[key].numel() != torch.Size(spec.shape).numel():
                raise WeightMismatch(
                    f"weight version {version}: {key} has shape {tuple(views[key].shape)}, held as {spec.shape}"
                )
        self._held, self._views = held, views

    @property
    def _device(self) -> torch.device:
        return next(iter(self._views.values())).device

    def _finish(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    def _digests_of_export(self) -> dict[str, int]:
        """One tensor at a time: the exported ones are valid until the next."""
        return {key: int(digests([self._as_held(key, tensor)])) for key, tensor in self._exported()}

    def _exported(self) -> Iterator[tuple[str, Tensor]]:
        """Every held box of the export, by its key."""
        boxes: dict[str, list[HeldSpec]] = {}
        for spec in self._held.values():
            boxes.setdefault(spec.name, []).append(spec)
        for name, tensor in self._source.weights():
            yield from ((spec.key, box(tensor, spec.start, spec.shape)) for spec in boxes.get(name, ()))

    def _digests_of_views(self) -> dict[str, int]:
        """Most views are what the engine holds bit for bit, and digested where they lie; the others are converted."""
        if self._digester is None:
            same = {
                name for name, view in self._views.items() if self._as_held(name, view).data_ptr() == view.data_ptr()
            }
            self._in_place = [name for name in self._views if name in same]
            self._converted = [name for name in self._views if name not in same]
            self._digester = Digester([self._views[name] for name in self._in_place])
        converted = digests([self._as_held(name, self._views[name]) for name in self._converted])
        found = dict(zip(self._in_place, self._digester.run().tolist(), strict=True))
        return found | dict(zip(self._converted, converted.tolist(), strict=True))

    def _compare(self, version: int, ours: Mapping[str, int], theirs: Sequence[int]) -> None:
        differing = [name for name, held in zip(self._held, theirs, strict=True) if ours.get(name) != held]
        if not differing:
            return
        name = differing[0]
        sent = next((tensor for key, tensor in self._exported() if key == name), None)
        where = "was not exported" if sent is None else first_difference(self._as_held(name, sent), self._read(name))
        raise WeightMismatch(
            f"weight version {version}: {len(differing)} of {len(self._held)} tensors differ between trainer and "
            f"engine; {name} {where}"
        )

    def _as_held(self, name: str, tensor: Tensor) -> Tensor:
        spec = self._held[name]
        return as_held(tensor, getattr(torch, spec.dtype), spec.transform).reshape(spec.shape)

    def _read(self, name: str) -> Tensor:
        """One tensor as the engine holds it, copied to this process."""
        spec = self._held[name]
        copy = torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device=self._device)
        buffers, specs = as_buffers({name: copy})
        self._engine.order(Order(do="read", views=specs), buffers)
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
