"""An error that a job raised on purpose keeps its class and message across the process boundary, as `error.json`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nemotron_rl import errors
from nemotron_rl.cluster.files import ERROR_FILE, read_json, write_json
from nemotron_rl.errors import NemotronRLError


@contextmanager
def report_failure(work_dir: Path) -> Iterator[None]:
    """Around a job's work: a NemotronRLError is written to `{work_dir}/error.json` and raised on."""
    try:
        yield
    except NemotronRLError as error:
        public = next(kind for kind in type(error).__mro__ if kind.__module__ == errors.__name__)
        write_json(
            work_dir / ERROR_FILE, {"type": public.__name__, "message": str(error), "exit_code": error.exit_code}
        )
        raise


def read_failure(work_dir: Path) -> NemotronRLError | None:
    """The error that the job in this folder reported, or None. An unknown class becomes the base class."""
    report = read_json(work_dir / ERROR_FILE)
    if report is None:
        return None
    kind = getattr(errors, str(report["type"]), NemotronRLError)
    error = kind(str(report["message"]))
    if not isinstance(error, NemotronRLError):
        raise TypeError(f"{work_dir / ERROR_FILE}: {report['type']} is not an error of nemotron_rl.errors")
    return error
