"""Rewards of a response, given the label."""
