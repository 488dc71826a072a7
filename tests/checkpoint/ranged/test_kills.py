"""kill -9 at twenty points of a slice from a Hub, each followed by the same command again."""

from __future__ import annotations

import multiprocessing
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from nemotron_rl.checkpoint.ranged.folder import FolderSource
from nemotron_rl.checkpoint.ranged.hub import HubSource
from nemotron_rl.checkpoint.slice_plan import plan_slice
from nemotron_rl.checkpoint.slicing import slice_checkpoint
from nemotron_rl.errors import InputError
from tests.checkpoint.hub import Answer, Fetched, Hub, serving

KILLS = 20
PIECE = 40_000
LAYERS = [0, 1, 3, 4]
NOT_EMPTY = 2
KILLED = -9


@dataclass(frozen=True)
class Trial:
    """A slice that was killed, and the one after it."""

    exit_code: int
    again: int
    """Exit code of the second one."""
    ranges_twice: int
    bytes_twice: int
    """Of ranges that were sent to both."""
    headers: int
    """Bytes of config, index and headers that were sent to the second."""


def slice_hub(url: str, dst: Path) -> None:
    """What runs in the process that is killed."""
    source = HubSource("org/name", "v1", endpoint=url, token="none")
    try:
        slice_checkpoint(source, dst, LAYERS, piece_bytes=PIECE)
    except InputError:
        sys.exit(NOT_EMPTY)
    finally:
        source.close()


@pytest.fixture(scope="module")
def processes() -> Iterator[ForkServerContext]:
    """Processes of their own that need not import everything first."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([slice_hub.__module__, HubSource.__module__])
    yield context


def kill_and_repeat(hub: Hub, processes: ForkServerContext, dst: Path, at_byte: int, delay_s: float) -> Trial:
    """Kill a slice when the hub has sent `at_byte` bytes and `delay_s` seconds have passed, then slice again."""
    reached = threading.Event()
    left = at_byte

    def count(_: str, answer: Answer) -> None:
        nonlocal left
        left -= len(answer.body)
        if left <= 0:
            reached.set()

    hub.fetched.clear()
    hub.always = count
    victim = processes.Process(target=slice_hub, args=(hub.url, dst))
    victim.start()
    assert reached.wait(60)
    time.sleep(delay_s)
    victim.kill()
    victim.join()
    hub.always = None
    first = Counter(_ranges(hub))
    hub.fetched.clear()
    second_try = processes.Process(target=slice_hub, args=(hub.url, dst))
    second_try.start()
    second_try.join()
    twice = [part for part in _ranges(hub) if first[part]]
    headers = sum(part.size for part in hub.fetched) - sum(part.size for part in _ranges(hub))
    assert victim.exitcode is not None and second_try.exitcode is not None
    return Trial(victim.exitcode, second_try.exitcode, len(twice), sum(part.size for part in twice), headers)


def _ranges(hub: Hub) -> list[Fetched]:
    """What was sent of tensors and companion files; what says where they are is read anew by every process."""
    unplanned = ("config.json", "model.safetensors.index.json")
    return [
        part
        for part in hub.fetched
        if part.file not in unplanned and not (part.file.endswith(".safetensors") and part.start <= 8)
    ]


def files_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.slow
def test_a_slice_that_is_killed_anywhere_is_completed_by_the_same_command(
    tiny: Path, tmp_path: Path, processes: ForkServerContext
) -> None:
    points = random.Random(20)
    plan = plan_slice(FolderSource(tiny), LAYERS, source_name="tiny", piece_bytes=PIECE)
    with serving(tiny, pause_s=0.01) as hub:
        slice_hub(hub.url, tmp_path / "whole")
        everything, expected = hub.bytes_sent, files_of(tmp_path / "whole")
        at_once = {(part.file, part.start) for part in _ranges(hub)}
        assert at_once == {(piece.file, piece.start) for piece in plan.fetch.pieces}
        headers = everything - plan.fetch.fetched
        trials: list[Trial] = []
        for number in range(KILLS):
            dst = tmp_path / f"out{number}" / "dst"
            at_byte = points.randint(1, everything)
            trial = kill_and_repeat(hub, processes, dst, at_byte, delay_s=points.uniform(0, 0.02))
            assert files_of(dst) == expected
            assert [path.name for path in dst.parent.iterdir()] == ["dst"]
            trials.append(trial)
    for trial in trials:
        finished = trial.exit_code in (0, KILLED) and trial.again == NOT_EMPTY  # killed after the last byte
        assert (trial.exit_code, trial.again) == (KILLED, 0) or finished
        assert trial.ranges_twice <= HubSource.workers
        assert trial.bytes_twice <= HubSource.workers * PIECE
        assert trial.headers <= headers
    assert sum(trial.exit_code == KILLED and trial.again == 0 for trial in trials) > KILLS // 2
