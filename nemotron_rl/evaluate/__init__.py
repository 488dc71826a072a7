"""Scores of held-out answers."""
