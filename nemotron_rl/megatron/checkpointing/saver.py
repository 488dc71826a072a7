"""What the training job uses to save and resume: all ranks call the same methods in the same order."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
import torch.distributed as dist
from safetensors import SafetensorError

from nemotron_rl.config.settings import Settings
from nemotron_rl.errors import NemotronRLError, StoreError
from nemotron_rl.megatron import process
from nemotron_rl.megatron.causes import root_cause
from nemotron_rl.megatron.checkpointing.choice import FOLDER, choose
from nemotron_rl.megatron.checkpointing.record import Record, trajectory
from nemotron_rl.megatron.checkpointing.restore import RANDOM, rank_file, restore
from nemotron_rl.megatron.checkpointing.state import TrainingState, prepare, save_random_state
from nemotron_rl.megatron.checkpointing.writing import BackgroundWrite
from nemotron_rl.report.format import size
from nemotron_rl.store.manifest import FileEntry
from nemotron_rl.store.steps import Draft, StepStore, file_entry

METRICS = "metrics.jsonl"
"""The metrics of all steps before the checkpoint, in it."""


Room = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Start:
    """Where training begins."""

    step: int
    sampler_position: int


@dataclass(frozen=True)
class _Pending:
    """A save under way."""

    draft: Draft
    record: Record
    write: BackgroundWrite


class Saver:
    """The checkpoints of one run. A context manager: its end waits for the last save, unless an error ended the run."""

    def __init__(self, run_dir: Path, settings: Settings, inputs: Sequence[str], metrics: Path) -> None:
        """`inputs`: digests of what training reads; `metrics`: the file that the first rank appends to."""
        self._store = StepStore(run_dir / FOLDER)
        self._settings, self._inputs, self._metrics = settings, tuple(inputs), metrics
        self._pending: _Pending | None = None
        self._due = False
        self._blocked_s = 0.0
        self._lock = contextlib.ExitStack()

    def __enter__(self) -> Self:
        process.from_first_rank(lambda: self._lock.enter_context(self._store.locked()))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with self._lock:
            if kind is None:
                self._collect(wait=True)

    def resume(self, state: TrainingState) -> Start:
        """Make `state` and the metrics file what they were at the chosen checkpoint, or leave the state for step 0.

        Raises:
            InputError: there is no such checkpoint, or it does not fit this run.
            StoreError: a part of it is missing, altered or cannot be read.
        """
        # Megatron collects garbage twice in each save, a second each time over what imports left: none of it garbage.
        gc.freeze()
        choice = process.from_first_rank(lambda: choose(self._store, self._settings, self._inputs))
        if choice is None:
            process.from_first_rank(lambda: replace_file(self._metrics, b""))
            return Start(0, 0)
        folder = restore(choice, state, self._settings)
        process.from_first_rank(lambda: replace_file(self._metrics, (folder / METRICS).read_bytes()))
        return Start(choice.record.step, choice.record.sampler_position)

    def after(
        self, step: int, state: TrainingState, sampler_position: int, room: Room = contextlib.nullcontext
    ) -> None:
        """Call after `step` updates and their metrics: commits a save that is ready, starts one that is due.

        The state is gathered inside `room()`, which may free memory of whoever shares the device.

        Raises:
            StoreError: a save failed, in the background too.
        """
        started = time.perf_counter()
        self._collect(wait=False)
        every = self._settings.train.checkpoint.every
        self._due |= bool(every) and (step % every == 0 or step == self._settings.train.steps)
        if self._due and step == self._settings.train.steps:
            self._collect(wait=True)
        if self._due and self._pending is None:
            with room():
                self._begin(step, state, sampler_position)
            self._collect(wait=not self._settings.train.checkpoint.background)
        self._blocked_s += time.perf_counter() - started

    def metrics(self) -> dict[str, float]:
        """`time/save_s`: how long saving held up training since this was last asked."""
        blocked, self._blocked_s = self._blocked_s, 0.0
        return {"time/save_s": blocked} if self._settings.train.checkpoint.every else {}

    def _begin(self, step: int, state: TrainingState, sampler_position: int) -> None:
        draft = process.from_first_rank(lambda: self._store.begin(step))
        others = process.agreed(lambda: self._small_files(draft))
        write = BackgroundWrite(prepare(state, draft.folder), draft.folder, others)
        record = Record(
            step=step,
            sampler_position=sampler_position,
            resume=str(self._settings.train.resume),
            parallel=self._settings.parallel,
        )
        self._pending, self._due = _Pending(draft, record, write), False

    def _small_files(self, draft: Draft) -> list[Path]:
        """Random state and metrics, written at once."""
        with _explained(draft):
            path = draft.folder / RANDOM / rank_file(dist.get_rank())
            path.parent.mkdir(exist_ok=True)
            save_random_state(path)
            if not process.is_first_rank():
                return [path]
            shutil.copyfile(self._metrics, draft.folder / METRICS)
            return [path, draft.folder / METRICS]

    def _collect(self, wait: bool) -> None:
        """Commit the pending save when it is written on all ranks, or after waiting for that."""
        pending = self._pending
        if pending is None or not (wait or _everywhere(pending.write.done)):
            return
        self._pending = None
        try:
            mine = process.agreed(lambda: _waited(pending))
        except NemotronRLError:
            process.from_first_rank(lambda: self._store.discard(pending.draft))
            raise
        with _explained(pending.draft):
            pending.write.finalize()
        parts: list[list[FileEntry]] = [[] for _ in range(dist.get_world_size())]
        dist.all_gather_object(parts, mine)
        process.from_first_rank(lambda: self._commit(pending, [entry for part in parts for entry in part]))

    def _commit(self, pending: _Pending, files: list[FileEntry]) -> None:
        draft = pending.draft
        with _explained(draft):
            known = {entry.path for entry in files}
            found = (path for path in draft.folder.rglob("*") if path.is_file())
            late = [path for path in found if path.relative_to(draft.folder).as_posix() not in known]
            files = [*files, *(file_entry(draft.folder, path) for path in late)]  # megatron's, written by `finalize`
        self._store.commit(
            draft,
            files,
            inputs=self._inputs,
            settings=trajectory(self._settings),
            facts=pending.record.model_dump(mode="json"),
        )
        self._store.keep_last(self._settings.train.checkpoint.keep)


def _waited(pending: _Pending) -> list[FileEntry]:
    with _explained(pending.draft):
        return pending.write.wait()


@contextlib.contextmanager
def _explained(draft: Draft) -> Iterator[None]:
    """Turn what writing files can raise into an error that says which checkpoint, and how much room there is."""
    try:
        yield
    except (OSError, RuntimeError, SafetensorError) as error:
        reason = root_cause(error)
        free = shutil.disk_usage(draft.folder).free if draft.folder.exists() else 0
        raise StoreError(
            f"cannot save {draft.folder}: {reason}\n  {size(free)} are free there. Make room, or set "
            "train.checkpoint.keep or train.checkpoint.every; the run resumes from its last complete checkpoint."
        ) from error


def _everywhere(done: bool) -> bool:
    flag = torch.tensor([int(done)], device=process.device())
    dist.all_reduce(flag, op=dist.ReduceOp.MIN)
    return bool(flag.item())


def replace_file(path: Path, content: bytes) -> None:
    """Put a new file in the place of `path`: whoever follows the old one notices that it is another."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(content)
    partial.replace(path)
