"""The order in which training prompts are visited: a pure function of seed and position, so a resumed run continues."""

from __future__ import annotations

import random


class PromptSampler:
    """Visits all of n prompts, in a new order each epoch, without repeating one within an epoch.

    A batch may span two epochs. The whole state is `position`.
    """

    def __init__(self, n: int, batch: int, seed: int, position: int = 0) -> None:
        if n < 1 or batch < 1 or position < 0:
            raise ValueError(f"needs n >= 1, batch >= 1 and position >= 0, got {n}, {batch} and {position}")
        self.n = n
        self.batch = batch
        self.seed = seed
        self.position = position
        """Prompts drawn so far, over all epochs."""
        self._epoch = -1
        self._order: list[int] = []

    def next_batch(self) -> list[int]:
        """Indices of the next `batch` prompts, each in [0, n)."""
        indices = [self._at(position) for position in range(self.position, self.position + self.batch)]
        self.position += self.batch
        return indices

    def _at(self, position: int) -> int:
        epoch, offset = divmod(position, self.n)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, epoch_order(self.n, self.seed, epoch)
        return self._order[offset]


def epoch_order(n: int, seed: int, epoch: int) -> list[int]:
    """A permutation of 0 … n-1 that depends on nothing but the arguments."""
    order = list(range(n))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return order
