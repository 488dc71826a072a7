"""What a job's description refuses, and what its handle says."""

from __future__ import annotations

from pathlib import Path

import pytest

from nemotron_rl.cluster import JobHandle, JobSpec, JobState
from nemotron_rl.errors import InputError


@pytest.mark.parametrize("key", ["", "-a", "a b", "a/b", "ä", "x" * 129, "a\n"])
def test_a_key_that_cannot_name_a_job_is_refused(key: str) -> None:
    with pytest.raises(InputError, match="job key"):
        JobSpec(key, ("true",), Path("w"))


def test_ranks_that_do_not_spread_over_nodes_are_refused() -> None:
    with pytest.raises(InputError, match="3 ranks do not spread evenly over 2 nodes"):
        JobSpec("a", ("python", "-m", "m"), Path("w"), distributed=True, ranks=3, nodes=2)


def test_several_ranks_need_a_distributed_job() -> None:
    with pytest.raises(InputError, match="distributed=True"):
        JobSpec("a", ("true",), Path("w"), ranks=2)


def test_an_empty_command_is_refused() -> None:
    with pytest.raises(InputError, match="empty"):
        JobSpec("a", (), Path("w"))


def test_the_folder_is_absolute_so_that_it_means_the_same_everywhere() -> None:
    assert JobSpec("a", ("true",), Path("w")).work_dir == Path.cwd() / "w"


def test_each_attempt_has_its_own_log() -> None:
    assert JobHandle("a", "17", Path("/w")).log == Path("/w/job-17.log")


def test_only_pending_and_running_jobs_have_not_ended() -> None:
    assert [state for state in JobState if not state.ended] == [JobState.PENDING, JobState.RUNNING]
