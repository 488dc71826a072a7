"""Hugging Face checkpoints of Nemotron-H: geometry, layout, slicing, synthesis and comparison. Imports no torch."""
