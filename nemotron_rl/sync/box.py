"""Rectangular parts of a tensor. Pure: imports no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, order=True, slots=True)
class Box:
    """Consecutive places in every dimension."""

    start: tuple[int, ...]
    size: tuple[int, ...]

    @classmethod
    def whole(cls, shape: Sequence[int]) -> Box:
        """All of a tensor."""
        return cls((0,) * len(shape), tuple(shape))

    @property
    def stop(self) -> tuple[int, ...]:
        """One past the last place in each dimension."""
        return tuple(start + size for start, size in zip(self.start, self.size, strict=True))

    @property
    def numel(self) -> int:
        """Elements."""
        return math.prod(self.size)

    def overlap(self, other: Box) -> Box | None:
        """What both have, None when that is nothing; both are boxes of one tensor."""
        start = tuple(map(max, self.start, other.start))
        stop = tuple(map(min, self.stop, other.stop))
        size = tuple(end - begin for begin, end in zip(start, stop, strict=True))
        return Box(start, size) if all(length > 0 for length in size) else None

    def inside(self, outer: Box) -> Box:
        """The same places, counted from where `outer` begins."""
        return Box(tuple(a - b for a, b in zip(self.start, outer.start, strict=True)), self.size)

    def of(self, tensor: Any) -> Any:
        """The part of a torch tensor, a view."""
        for dimension, (start, size) in enumerate(zip(self.start, self.size, strict=True)):
            tensor = tensor.narrow(dimension, start, size)
        return tensor

    def cut(self, numel: int) -> Iterator[Box]:
        """Boxes of at most `numel` elements that make up this one, in row-major order; cut along leading dimensions."""
        if self.numel <= numel or not self.size:
            yield self
            return
        longest = next(d for d, size in enumerate(self.size) if size > 1)
        step = max(1, numel // math.prod(self.size[longest + 1 :]))
        for first in range(0, self.size[longest], step):
            length = min(step, self.size[longest] - first)
            part = Box(
                _replaced(self.start, longest, self.start[longest] + first), _replaced(self.size, longest, length)
            )
            yield from part.cut(numel)


def bounding(boxes: Iterable[Box]) -> tuple[int, ...]:
    """The smallest shape that has room for all boxes of one tensor."""
    return tuple(max(ends) for ends in zip(*(box.stop for box in boxes), strict=True))


def _replaced(values: tuple[int, ...], place: int, value: int) -> tuple[int, ...]:
    return (*values[:place], value, *values[place + 1 :])
