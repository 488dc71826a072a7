"""Prompts: their files, a generator, and the order in which they are visited."""
