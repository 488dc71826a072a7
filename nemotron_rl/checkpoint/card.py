"""The model card."""

from __future__ import annotations

from pathlib import Path

from nemotron_rl.config.base import Frozen


class CardFacts(Frozen):
    """x."""


def write_card(folder: Path, facts: CardFacts) -> None:
    """x."""
