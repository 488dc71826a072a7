"""How much memory a run needs on each GPU, estimated before anything is started. Imports no torch."""
