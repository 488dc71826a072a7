"""Cuts layers out of a checkpoint: byte-exact copies under new numbers, never through a model object.

transformers re-draws some weights when it loads and renames others when it saves, so bytes are all that is moved here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nemotron_rl.checkpoint.new_folder import check_new_folder, writing
from nemotron_rl.checkpoint.progress import Meter, Progress
from nemotron_rl.checkpoint.ranged.fetch import fetch, plan_key, prepare_targets
from nemotron_rl.checkpoint.ranged.folder import FolderSource
from nemotron_rl.checkpoint.ranged.journal import resumable_folder
from nemotron_rl.checkpoint.ranged.source import ByteSource
from nemotron_rl.checkpoint.selection import Mtp
from nemotron_rl.checkpoint.slice_plan import PROVENANCE_FILE, SlicePlan, plan_slice
from nemotron_rl.checkpoint.tally import Tally
from nemotron_rl.checkpoint.writer import DEFAULT_SHARD_SIZE, write_index, write_json
from nemotron_rl.config.base import Frozen
from nemotron_rl.paths import check_apart

__all__ = ["PROVENANCE_FILE", "SliceReport", "slice_checkpoint", "write_slice"]


class SliceReport(Frozen):
    """What a slice has."""

    source: str
    """Name of the source, as it is written into the provenance file."""
    layers: tuple[int, ...]
    """Source layers in their new order."""
    pattern: str
    """The new pattern, with the MTP head after a slash."""
    tally: Tally
    shards: int


def slice_checkpoint(
    src: Path | ByteSource,
    dst: Path,
    layers: Sequence[int] | None,
    mtp: Mtp = "keep",
    progress: Progress | None = None,
    *,
    source_name: str | None = None,
    shard_size: int = DEFAULT_SHARD_SIZE,
    piece_bytes: int | None = None,
) -> SliceReport:
    """Write the chosen layers of `src` as a new checkpoint `dst`, which appears complete or not at all.

    Of a remote source only the wanted bytes are fetched. When it is killed, or the source cannot be reached, the same
    call continues where it was.

    Args:
        src: A checkpoint folder, or another place with one.
        dst: A folder that does not exist or is empty.
        layers: Source layers in their new order; None keeps all.
        mtp: Whether the multi-token-prediction head is kept.
        progress: Told about the bytes taken from the source: tensors and companion files.
        source_name: What provenance calls the source, such as its URI; by default the folder's name, never a path.
        shard_size: Bytes of tensors per shard.
        piece_bytes: Longest read of the source; None leaves it to the source.

    Raises:
        SliceError: The layers cannot be chosen so.
        CheckpointError: The source is broken, lacks tensors that its config promises, or changes meanwhile.
        SourceUnavailable: The source kept failing; what was fetched is kept for the next call.
        InputError: `dst` is taken, cannot be written, or lies in the source.
    """
    check_new_folder(dst)
    source = FolderSource(src) if isinstance(src, Path) else src
    check_outside(source, dst)
    name = source_name or (src.absolute().name if isinstance(src, Path) else source.where)
    plan = plan_slice(source, layers, mtp, source_name=name, shard_size=shard_size, piece_bytes=piece_bytes)
    return write_slice(source, dst, plan, progress)


def check_outside(source: ByteSource, dst: Path) -> None:
    """Refuse a destination that lies in the source. Raises InputError."""
    if isinstance(source, FolderSource):
        check_apart(source.path, dst)


def write_slice(source: ByteSource, dst: Path, plan: SlicePlan, progress: Progress | None = None) -> SliceReport:
    """Carry out a plan of this source. Arguments and errors as for `slice_checkpoint`."""
    key = plan_key(source, plan.fetch, plan.targets)
    with resumable_folder(dst, key, lambda folder: prepare_targets(folder, plan.targets)) as (folder, journal):
        fetch(source, plan.fetch, folder, journal, Meter(plan.fetch.needed, progress), source.workers)
        with writing(dst):
            write_index(folder, plan.shards)
            for file, content in plan.documents.items():
                write_json(folder / file, content)
    return SliceReport(
        source=plan.source, layers=plan.layers, pattern=plan.pattern, tally=plan.tally, shards=len(plan.shards)
    )
