"""What the stages' retries and time limits have in common."""

from __future__ import annotations

from typing import Any

from prefect.client.schemas.objects import State, TaskRun
from prefect.tasks import Task

from nemotron_rl.errors import JobError, StoreError

HOUR = 3600.0
DAY = 24 * HOUR

PASSING = (JobError, StoreError, OSError)
"""Errors whose reason may pass: a lost node, a busy store, a broken connection. A user's mistake is not one of them."""


def may_pass(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:
    """Whether a task that failed is worth another try; Prefect's `retry_condition_fn`."""
    return isinstance(state.data, PASSING)
