"""Tensor functions that trainer and engine share; nothing here knows a model or a process group."""
