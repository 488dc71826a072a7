"""nemotron-rl: reinforcement learning on NVIDIA Nemotron-H and Nemotron-3 models."""

__version__ = "0.1.0"
