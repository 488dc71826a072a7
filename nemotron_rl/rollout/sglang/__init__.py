"""SGLang as the rollout engine: its own process tree on the trainer's GPUs, weights through CUDA IPC."""
