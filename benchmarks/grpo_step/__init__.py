"""One GRPO update of the same samples, by our trainer and by TRL's, each in a process of its own."""
