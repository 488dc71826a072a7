"""What all stages' tasks have in common: what is tried again, what is kept, and how a cached result looks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext
from prefect.states import Completed
from prefect.tasks import Task, exponential_backoff

from nemotron_rl.checkpoint.ranged.source import SourceUnavailable
from nemotron_rl.errors import JobError, StoreError

HOUR = 3600.0
DAY = 24 * HOUR

PASSING = (JobError, StoreError, SourceUnavailable, OSError)
"""Errors whose reason may pass: a lost node, a busy store, a broken connection. A user's mistake is not one of them."""


class StageTask[**P, R](Task[P, R]):
    """A Prefect task whose body may hand on a result that was there already; see `cached`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:  # type: ignore[override]  # no return_state, wait_for
        """Run as a task and return its result."""
        result: Any = super().__call__(*args, **kwargs)
        return cast(R, result.result() if isinstance(result, State) else result)


def stage_task[**P, R](
    name: str, *, retries: int, delay_s: float, timeout_s: float, tags: tuple[str, ...] = ()
) -> Callable[[Callable[P, R]], StageTask[P, R]]:
    """Make a function a stage's task.

    Prefect's own cache is off: it believes its database, and would show a result as cached after the store was deleted,
    or make it again when only the database was. Whether the store has the artifact is all that counts.

    Args:
        name: Of the task, in the UI.
        retries: Further tries after an error whose reason may pass.
        delay_s: Seconds before the first of them; it doubles from one to the next, with jitter.
        timeout_s: Longest time of one try, in seconds.
        tags: For concurrency limits: `network` or `job`.
    """

    def decorate(function: Callable[P, R]) -> StageTask[P, R]:
        return StageTask(
            function,
            name=name,
            retries=retries,
            retry_delay_seconds=exponential_backoff(delay_s),
            retry_jitter_factor=0.5,
            retry_condition_fn=may_pass,
            timeout_seconds=timeout_s,
            tags=tags,
            cache_policy=NO_CACHE,
            persist_result=True,
        )

    return decorate


def may_pass(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:
    """Whether a task that failed is worth another try; Prefect's `retry_condition_fn`."""
    return isinstance(state.data, PASSING)


def cached[T](value: T) -> T:
    """The value as the result of a task whose final state is named Cached; outside of a task run, the value."""
    if TaskRunContext.get() is None:
        return value
    return cast(T, Completed(name="Cached", data=value))  # a state that a task returns becomes its own
