"""The CPU engine: Nemotron-H in plain torch with cached decoding. Meant to be right and readable, not to be fast."""
