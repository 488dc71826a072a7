"""Reward 1 for the label's own text, 0 for everything else."""

from __future__ import annotations


def exact(response: str, label: str) -> float:
    """1.0 when both texts are equal once white space around them is dropped, else 0.0."""
    return float(response.strip() == label.strip())
