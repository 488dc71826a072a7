"""A part of a weight in this process's memory."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from nemotron_rl.sync.box import Box
from nemotron_rl.sync.resharding import Part


@dataclass(frozen=True)
class Placed:
    """A box of a checkpoint tensor where it lies."""

    name: str
    """The checkpoint's tensor."""
    box: Box
    view: Tensor
    """The box's elements, of its size; follows the weight's values for as long as that is not moved."""

    @classmethod
    def whole(cls, name: str, tensor: Tensor) -> Placed:
        """A tensor that is there in whole."""
        return cls(name, Box.whole(tensor.shape), tensor)

    @property
    def part(self) -> Part:
        """The same without the memory."""
        return Part(self.name, self.box, dtype_name(self.view))

    def of(self, box: Box) -> Tensor:
        """The view of a box within this one, both counted in the checkpoint's tensor."""
        part: Tensor = box.inside(self.box).of(self.view)
        return part


def dtype_name(tensor: Tensor) -> str:
    """torch's name of a tensor's type, such as bfloat16."""
    return str(tensor.dtype).removeprefix("torch.")
