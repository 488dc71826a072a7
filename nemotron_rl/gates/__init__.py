"""Gates: what a run must keep to be called sound."""
