"""The fixtures of the flows' tests; tasks are called here without Prefect."""

from __future__ import annotations

from tests.flows.conftest import make_settings, stand_in_jobs

__all__ = ["make_settings", "stand_in_jobs"]
