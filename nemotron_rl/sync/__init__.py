"""Weights from the trainer to the engine, and the proof that they arrived."""
