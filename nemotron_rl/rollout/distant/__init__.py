"""Rollouts on ranks of their own, beside the trainers of the same job; `rollout.placement: separate`."""
