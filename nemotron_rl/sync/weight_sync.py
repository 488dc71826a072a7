"""The contract between the training loop and a way of sending weights."""

from __future__ import annotations

from typing import Protocol

from nemotron_rl.sync.push import SyncProof


class WeightSync(Protocol):
    """Sends a trainer's weights to an engine."""

    def push(self, version: int) -> SyncProof:
        """Replace the engine's weights by the trainer's and prove that it holds exactly these.

        Raises:
            WeightMismatch: naming the version, the first tensor that is missing, unknown or different, and the index.
        """
        ...
