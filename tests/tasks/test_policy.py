"""Which failures are tried again, and who is told about progress."""

from __future__ import annotations

import pytest
from prefect.states import Failed

from nemotron_rl.checkpoint.ranged.source import SourceChanged, SourceUnavailable
from nemotron_rl.errors import InputError, JobError, StoreError, WeightMismatch
from nemotron_rl.report.reporter import NullReporter
from tasks.policy import cached, may_pass
from tasks.progress import LogReporter, reporter, use_reporter
from tasks.train import train


@pytest.mark.parametrize(
    "error", [JobError("node lost"), StoreError("busy"), SourceUnavailable("HTTP 503"), ConnectionError("reset")]
)
def test_what_may_pass_is_tried_again(error):
    assert may_pass(train, None, Failed(data=error))


@pytest.mark.parametrize(
    "error",
    [InputError("typo"), SourceChanged("s3://b/p", "x", "its ETag"), WeightMismatch("wrong"), TypeError("a bug")],
)
def test_a_mistake_is_not_tried_again(error):
    assert not may_pass(train, None, Failed(data=error))


def test_outside_of_a_task_run_a_cached_value_is_the_value():
    assert cached(3) == 3


def test_the_installed_reporter_is_told_and_then_forgotten():
    mine = NullReporter()
    assert isinstance(reporter(), LogReporter)
    with use_reporter(mine):
        assert reporter() is mine
    assert isinstance(reporter(), LogReporter)
