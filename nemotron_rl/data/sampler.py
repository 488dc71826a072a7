"""The order in which training prompts are visited: a pure function of seed and position, so a resumed run continues."""

from __future__ import annotations

import random
from collections.abc import Collection


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
        return [self.at(position) for position in self.next_positions()]

    def next_positions(self) -> list[int]:
        """Positions of the next `batch` prompts; `at` says which prompts these are."""
        positions = list(range(self.position, self.position + self.batch))
        self.position += self.batch
        return positions

    def next_unseen(self, seen: Collection[int]) -> list[int]:
        """Positions of the next `batch` prompts whose indices are not in `seen`, each prompt once.

        Raises:
            ValueError: when there are not so many; `unseen_are_left` asks first.
        """
        if not self.unseen_are_left(seen):
            raise ValueError(f"{self.n} prompts less {len(set(seen))} are fewer than the {self.batch} that are wanted")
        positions: list[int] = []
        taken = set(seen)
        while len(positions) < self.batch:
            index = self.at(self.position)
            if index not in taken:
                taken.add(index)
                positions.append(self.position)
            self.position += 1
        return positions

    def unseen_are_left(self, seen: Collection[int]) -> bool:
        """Whether there are `batch` prompts besides those in `seen`."""
        return self.n - len(set(seen)) >= self.batch

    def at(self, position: int) -> int:
        """Index of the prompt at a position."""
        epoch, offset = divmod(position, self.n)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, epoch_order(self.n, self.seed, epoch)
        return self._order[offset]


def epoch_order(n: int, seed: int, epoch: int) -> list[int]:
    """A permutation of 0 … n-1 that depends on nothing but the arguments."""
    order = list(range(n))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return order
