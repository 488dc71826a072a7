"""Cuts layers out of a checkpoint: byte-exact copies under new numbers, never through a model object.

transformers re-draws some weights when it loads and renames others when it saves, so bytes are all that is moved here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nemotron_rl import __version__
from nemotron_rl.checkpoint.companions import carry_over
from nemotron_rl.checkpoint.layout import CONFIG_FILE, CheckpointFolder, TensorEntry, read_json_object
from nemotron_rl.checkpoint.new_folder import check_new_folder, new_folder
from nemotron_rl.checkpoint.progress import Meter, Progress
from nemotron_rl.checkpoint.selection import Mtp, new_name, select_config
from nemotron_rl.checkpoint.spelling import read_pattern
from nemotron_rl.checkpoint.tally import Tally, tally
from nemotron_rl.checkpoint.tensor_table import tensor_table
from nemotron_rl.checkpoint.writer import DEFAULT_SHARD_SIZE, ShardWriter, plan_shards, write_json
from nemotron_rl.config.base import Frozen
from nemotron_rl.errors import CheckpointError

PROVENANCE_FILE = "nemotron_rl_slice.json"


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


@dataclass(frozen=True)
class _Copy:
    """A tensor under its new name, and where its bytes are."""

    new: TensorEntry
    old_name: str


def slice_checkpoint(
    src: Path,
    dst: Path,
    layers: Sequence[int] | None,
    mtp: Mtp = "keep",
    progress: Progress | None = None,
    *,
    source_name: str | None = None,
    shard_size: int = DEFAULT_SHARD_SIZE,
) -> SliceReport:
    """Write the chosen layers of `src` as a new checkpoint `dst`, which appears complete or not at all.

    Args:
        src: A checkpoint folder.
        dst: A folder that does not exist or is empty.
        layers: Source layers in their new order; None keeps all.
        mtp: Whether the multi-token-prediction head is kept.
        progress: Told about the tensors' bytes.
        source_name: What provenance calls the source, such as its URI; by default the folder's name, never a path.
        shard_size: Bytes of tensors per shard.

    Raises:
        SliceError: The layers cannot be chosen so.
        CheckpointError: The source is broken, or lacks tensors that its config promises.
        InputError: `dst` is taken or cannot be written.
    """
    check_new_folder(dst)
    source = CheckpointFolder.open(src)
    name = source_name or src.absolute().name
    config = select_config(source.config, layers, mtp, name)
    kept = tuple(layers) if layers is not None else tuple(range(len(source.pattern.main)))
    copies = _plan(source, config, kept, mtp, name)
    shards = plan_shards([copy.new for copy in copies], shard_size)
    meter = Meter(sum(copy.new.nbytes for copy in copies), progress)
    with new_folder(dst) as partial:
        with ShardWriter(partial, shards) as writer:
            for copy in copies:
                writer.write(copy.new.name, _metered(source.raw(copy.old_name), meter))
        carry_over(src, partial, leave=frozenset({PROVENANCE_FILE}))
        write_json(partial / CONFIG_FILE, config)
        write_json(partial / PROVENANCE_FILE, _provenance(src, source, name, kept, mtp))
    pattern = read_pattern(config)
    counts = tally((copy.new for copy in copies), pattern)
    return SliceReport(source=name, layers=kept, pattern=str(pattern), tally=counts, shards=len(shards))


def _plan(
    source: CheckpointFolder, config: Mapping[str, Any], kept: Sequence[int], mtp: Mtp, name: str
) -> tuple[_Copy, ...]:
    """What to copy: first what the new config promises, in its order, then whatever else belongs to the kept parts."""
    new_layer = {old: new for new, old in enumerate(kept)}
    found: dict[str, _Copy] = {}
    for old in source.tensors.values():
        renamed = new_name(old.name, new_layer, mtp)
        if renamed is not None:
            found[renamed] = _Copy(replace(old, name=renamed), old.name)
    promised = [spec.name for spec in tensor_table(config, name)]
    missing = [tensor for tensor in promised if tensor not in found]
    if missing:
        hint = " Use --mtp drop to leave the MTP head out." if missing[0].startswith("mtp.") else ""
        raise CheckpointError(
            f"{name} lacks {len(missing)} tensors that its config promises for these layers; the first, under its new "
            f"name, is '{missing[0]}'.{hint}"
        )
    return (*(found.pop(tensor) for tensor in promised), *found.values())


def _metered(chunks: Iterator[bytes], meter: Meter) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk
        meter.add(len(chunk))


def _provenance(src: Path, source: CheckpointFolder, name: str, kept: Sequence[int], mtp: Mtp) -> dict[str, Any]:
    """Where the slice comes from; a slice of a slice keeps the earlier one's account under `source_slice`."""
    account: dict[str, Any] = {
        "source": name,
        "source_pattern": str(source.pattern),
        "layers": list(kept),
        "mtp": mtp,
        "tool": f"nemotron-rl {__version__}",
    }
    if (src / PROVENANCE_FILE).exists():
        account["source_slice"] = read_json_object(src / PROVENANCE_FILE)
    return account
