"""Errors keep their meaning on the way out of a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from nemotron_rl.cluster import read_failure, report_failure
from nemotron_rl.errors import DataError, JobError, NemotronRLError


def test_an_error_comes_back_with_its_class_message_and_exit_code(tmp_path: Path) -> None:
    with pytest.raises(DataError), report_failure(tmp_path):
        raise DataError("prompts.jsonl, line 3: not JSON")
    error = read_failure(tmp_path)
    assert type(error) is DataError
    assert str(error) == "prompts.jsonl, line 3: not JSON"
    assert error.exit_code == 2


def test_a_private_subclass_comes_back_as_its_public_base(tmp_path: Path) -> None:
    class Special(DataError):
        def __init__(self, line: int) -> None:
            super().__init__(f"line {line}")

    with pytest.raises(Special), report_failure(tmp_path):
        raise Special(3)
    assert type(read_failure(tmp_path)) is DataError


def test_a_class_from_another_version_is_still_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "error.json").write_text('{"type": "FutureError", "message": "m", "exit_code": 1}')
    assert type(read_failure(tmp_path)) is NemotronRLError


def test_other_exceptions_are_not_reported(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), report_failure(tmp_path):
        _ = 1 / 0
    assert read_failure(tmp_path) is None


def test_success_reports_nothing(tmp_path: Path) -> None:
    with report_failure(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_the_last_of_several_ranks_to_report_wins_and_leaves_one_file(tmp_path: Path) -> None:
    for rank in range(2):
        with pytest.raises(JobError), report_failure(tmp_path):
            raise JobError(f"rank {rank}")
    assert str(read_failure(tmp_path)) == "rank 1"
    assert [path.name for path in tmp_path.iterdir()] == ["error.json"]
