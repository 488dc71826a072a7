"""Plain-torch modules that take the places of Transformer Engine's and mamba-ssm's in HybridModel on CPU."""
