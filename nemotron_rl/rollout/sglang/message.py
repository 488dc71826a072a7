"""What the trainer tells the code inside the engine, and the memory into which that writes its answer.

SGLang hands a custom weight loader a list of named CUDA tensors and drops what it returns. So an order travels as the
bytes of a JSON text, and answers are written into tensors of the trainer, which the engine has mapped through CUDA IPC.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from nemotron_rl.config.base import Frozen

LOADER = "nemotron_rl.rollout.sglang.receiver.receive"
"""The custom weight loader's import path, which SGLang must be told at its start."""
ORDER, ANSWER, DIGESTS, BUFFER = "order", "answer", "digests", "buffer"


class Place(Frozen):
    """A box of something that the engine holds."""

    key: str
    """Of what is held."""
    start: tuple[int, ...] | None = None
    """Where the box begins in each dimension of what is held; None is the whole."""
    shape: tuple[int, ...]


class ViewSpec(Place):
    """A strided view of a buffer that came with the order, and where its content belongs."""

    buffer: int
    offset: int
    """In elements of the buffer."""
    stride: tuple[int, ...]

    def of(self, buffers: list[Tensor]) -> Tensor:
        """The view itself."""
        return buffers[self.buffer].as_strided(self.shape, self.stride, self.offset)


class Order(Frozen):
    """One thing to do.

    `describe`: answer with the tensors held. `watch`: the places, which make up all that is held, are what digests are
    taken of from now on, one each; copies kept before are forgotten. `poison`: overwrite all tensors. `load`: copy the
    views in, and keep them when `keep` is set. `again`: copy in the views kept under `slot`. `digest`: take digests
    only; `load` and `again` do so as well when memory for them comes with the order. `read`: copy a place out.
    """

    do: Literal["describe", "watch", "poison", "load", "again", "digest", "read"]
    views: tuple[ViewSpec, ...] = ()
    places: tuple[Place, ...] = ()
    keep: bool = False
    slot: int = 0


class HeldSpec(Frozen):
    """A checkpoint tensor, or a box of one, that the engine holds."""

    name: str
    """The checkpoint's tensor; several boxes of it may be held."""
    key: str
    """No two have the same."""
    shape: tuple[int, ...]
    """Of the box, with as many dimensions as the checkpoint's tensor."""
    dtype: str
    """torch's name, such as bfloat16."""
    transform: Literal["same", "minus_exp"]
    start: tuple[int, ...] | None = None
    """Where the box begins in each dimension of the checkpoint's tensor; None is the whole."""


class Answer(Frozen):
    """What the engine says; digests travel beside it."""

    rank: int = 0
    error: str = ""
    """Empty when all went well."""
    held: tuple[HeldSpec, ...] = ()
    copied: int = Field(0, ge=0)
    """Tensors copied."""
    load_s: float = Field(0.0, ge=0)
    """Seconds that the copies took on the device."""
    digest_s: float = Field(0.0, ge=0)
    """Seconds that the digests took on the device."""


def to_bytes(text: str, device: torch.device | str) -> Tensor:
    """UTF-8 as uint8 [n]."""
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).to(device)


def from_bytes(data: Tensor) -> str:
    """The text in a uint8 tensor up to the first zero byte."""
    return bytes(data.cpu().numpy()).split(b"\0", 1)[0].decode()
