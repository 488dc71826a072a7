"""What a run shows: progress while it runs, and its results afterwards."""
