"""A folder that a job fills: one launcher at a time, and a job that outlives its launcher is found again.

Beside the destination lies `.NAME.filling` with the launcher's lock, a note of the job, and what the job writes. The
destination appears when the job has ended well. A killed launcher leaves its job running: the next launcher that wants
the same follows that job to its end; one that wants something else ends it first.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import ValidationError

from nemotron_rl.checkpoint.new_folder import check_new_folder, made_folders, writing
from nemotron_rl.cluster.factory import open_cluster
from nemotron_rl.cluster.files import read_json, write_json
from nemotron_rl.cluster.job import JobState
from nemotron_rl.config.run import ClusterSettings
from nemotron_rl.errors import InputError

_NOTED = {"key", "work_dir", "out", "made_from", "cluster"}
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@dataclass(frozen=True)
class Filling:
    """The job that fills the folder, and where."""

    key: str
    work_dir: Path
    """The job's own folder, with its log."""
    out: Path
    """What the job fills; it exists."""


@contextmanager
def filling(dst: Path, made_from: str, key: str, work_dir: Path, cluster: ClusterSettings) -> Iterator[Filling]:
    """Where to run the job that makes `dst`; when the block ends well, `out` becomes `dst`.

    A block that raises leaves nothing but the job's own folder; the block itself must have ended the job (`run_job`
    does). A process that is killed leaves `.NAME.filling`, which the next call continues or removes.

    Args:
        dst: A folder that does not exist or is empty.
        made_from: Names what is made; another launcher's job is followed only if its is equal.
        key: Beginning of a new job's key.
        work_dir: Holds the folder of a new job.
        cluster: Where a new job runs.

    Raises:
        InputError: `dst` is taken or cannot be written, or another process is filling it.
    """
    place = dst.absolute().parent / f".{dst.name}.filling"
    check_new_folder(dst)
    made = made_folders(dst)
    with writing(dst):
        place.mkdir(parents=True, exist_ok=True)
        lock = os.open(place / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _lock(lock, dst, place)
        try:
            with writing(dst):
                job = _earlier(place, made_from) or _new(place, made_from, key, work_dir, cluster)
            yield job
            with writing(dst):
                job.out.rename(dst)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            for folder in made:
                with suppress(OSError):  # somebody else may have put something there
                    folder.rmdir()
            raise
        shutil.rmtree(place, ignore_errors=True)
    finally:
        os.close(lock)


def _new(place: Path, made_from: str, key: str, work_dir: Path, cluster: ClusterSettings) -> Filling:
    """An empty folder and a job of a name of its own.

    A job that was lost sight of cannot write into the folder, and a cluster cannot take an earlier job of the same run
    for this one.
    """
    for left in place.glob("out-*"):
        shutil.rmtree(left)
    token = secrets.token_hex(8)
    job = Filling(f"{key}-{token}", work_dir / token, place / f"out-{token}")
    job.out.mkdir()
    note = {name: str(value) for name, value in asdict(job).items()}
    write_json(place / "job.json", note | {"made_from": made_from, "cluster": cluster.model_dump_json()})
    return job


def _earlier(place: Path, made_from: str) -> Filling | None:
    """The job of a launcher that was killed, if it makes the same and is running or done; any other is ended."""
    note = read_json(place / "job.json")
    if note is None or not note.keys() >= _NOTED:  # not written by this tool, or by another version
        return None
    job = Filling(str(note["key"]), Path(str(note["work_dir"])), Path(str(note["out"])))
    try:
        settings = ClusterSettings.model_validate_json(str(note["cluster"]))
    except ValidationError as error:
        raise InputError(f"{place} is of another version of this tool; see to its job, then delete it") from error
    cluster = open_cluster(settings)
    handle = cluster.attach(job.key, job.work_dir)
    if handle is None:
        return None
    state = cluster.poll(handle).state
    if note["made_from"] == made_from and job.out.is_dir() and (not state.ended or state is JobState.COMPLETED):
        return job
    cluster.cancel(handle)  # also when it has ended: processes may be left whose keeper was killed
    while not cluster.poll(handle).state.ended:
        time.sleep(settings.poll_seconds)
    return None


def _lock(descriptor: int, dst: Path, place: Path) -> None:
    """One launcher at a time. Where the file system has no locks, none is taken."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InputError(f"another process is writing {dst}; wait for it, or choose another folder") from error
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise InputError(f"cannot lock {place}: {error.strerror}") from error
    with suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(descriptor), (place / "lock").stat()):
            return
    raise InputError(f"another process has just finished writing {dst}")
