"""The mathematics of RL as pure tensor functions: advantages, losses, weights of tokens. No model, no process group."""
