"""Prefect flows: which stage follows which. How a stage runs is decided in tasks/."""
