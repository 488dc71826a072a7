"""What a slice will hold and which bytes of the source it takes. Reads headers and configs; writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nemotron_rl import __version__
from nemotron_rl.checkpoint.companions import is_companion
from nemotron_rl.checkpoint.cover import Choice, choose_layers
from nemotron_rl.checkpoint.layout import CONFIG_FILE, TensorEntry, read_checkpoint, read_source_json
from nemotron_rl.checkpoint.quantization import QUANT_FILE, QUANT_KEY, renumbered
from nemotron_rl.checkpoint.ranged.fetch import Target
from nemotron_rl.checkpoint.ranged.plan import FetchPlan, Part, plan_fetch
from nemotron_rl.checkpoint.ranged.source import ByteSource
from nemotron_rl.checkpoint.remote_code import without_read_only
from nemotron_rl.checkpoint.selection import Layers, Mtp, new_name, select_config
from nemotron_rl.checkpoint.spelling import read_pattern
from nemotron_rl.checkpoint.strict_json import shown
from nemotron_rl.checkpoint.tally import LAYERS_PREFIX, Tally, layer_of, tally
from nemotron_rl.checkpoint.tensor_table import tensor_table
from nemotron_rl.checkpoint.writer import DEFAULT_SHARD_SIZE, Shard, plan_shards
from nemotron_rl.errors import CheckpointError

PROVENANCE_FILE = "nemotron_rl_slice.json"


@dataclass(frozen=True)
class SlicePlan:
    """A slice before its bytes are fetched."""

    source: str
    """Name of the source, as it is written into the provenance file."""
    layers: tuple[int, ...]
    """Source layers in their new order."""
    pattern: str
    """The new pattern, with the MTP head after a slash."""
    tally: Tally
    documents: Mapping[str, Mapping[str, Any]]
    """JSON files that are written, not copied, by name: config, provenance, what names layers by their number."""
    choice: Choice | None
    """Why these layers, where they were chosen here."""
    shards: tuple[Shard, ...]
    targets: tuple[Target, ...]
    """Every file that gets bytes of the source: shards and companions."""
    fetch: FetchPlan


def plan_slice(
    source: ByteSource,
    layers: Layers,
    mtp: Mtp = "keep",
    *,
    source_name: str,
    shard_size: int = DEFAULT_SHARD_SIZE,
    piece_bytes: int | None = None,
) -> SlicePlan:
    """Plan the chosen layers of `source` as a checkpoint of their own.

    Args:
        source: A checkpoint. Config, index and headers are read, all of them, so that a broken one is found now.
        layers: Source layers in their new order; None keeps all, `auto` picks the cheapest cover.
        mtp: Whether the multi-token-prediction head is kept.
        source_name: What provenance calls the source.
        shard_size: Bytes of tensors per shard.
        piece_bytes: Longest read of the source; None leaves it to the source.

    Raises:
        SliceError: The layers cannot be chosen so.
        CheckpointError: The source is broken, or lacks tensors that its config promises.
    """
    source_config, tensors = read_checkpoint(source)
    choice = None
    if isinstance(layers, str):
        choice = _choice(source_config, tensors, source.where)
        layers = choice.chosen.layers
    config = select_config(source_config, layers, mtp, source_name)
    source_pattern = read_pattern(source_config, source.where)
    _check_layer_numbers(tensors, len(source_pattern.main), source_name)
    kept = tuple(layers) if layers is not None else tuple(range(len(source_pattern.main)))
    copies = _copies(tensors, config, kept, mtp, source_name)
    shards = plan_shards([new for new, _ in copies], shard_size)
    old = {new.name: old for new, old in copies}
    documents: dict[str, Mapping[str, Any]] = {CONFIG_FILE: without_read_only(config, source)}
    if kept != tuple(range(len(source_pattern.main))) or mtp == "drop":
        documents |= _accounts(source, documents[CONFIG_FILE], _new_layer(kept), mtp, source_name)
    documents[PROVENANCE_FILE] = _provenance(source, str(source_pattern), source_name, kept, mtp)
    companions = [file for file in source.files.values() if is_companion(file.name) and file.name not in documents]
    parts = [part for shard in shards for part in _parts(shard, old)]
    pattern = read_pattern(config)
    return SlicePlan(
        source=source_name,
        layers=kept,
        pattern=str(pattern),
        tally=tally((new for new, _ in copies), pattern),
        documents=documents,
        choice=choice,
        shards=shards,
        targets=(*map(_target, shards), *(Target(file.name, file.size) for file in companions)),
        fetch=plan_fetch(
            [*parts, *(Part(file.name, 0, file.size, file.name, 0) for file in companions)],
            source.piece_bytes if piece_bytes is None else piece_bytes,
        ),
    )


def _accounts(
    source: ByteSource, config: Mapping[str, Any], new_layer: Mapping[int, int], mtp: Mtp, name: str
) -> dict[str, Mapping[str, Any]]:
    """What names quantized modules by their layers, about the layers that are kept: the config, ModelOpt's own file."""
    found: dict[str, Mapping[str, Any]] = {}
    if QUANT_KEY in config:
        account = renumbered(config[QUANT_KEY], new_layer, mtp, f"{name}/{CONFIG_FILE}")
        found[CONFIG_FILE] = {**config, QUANT_KEY: account}
    if QUANT_FILE in source.files:
        account = read_source_json(source, QUANT_FILE)
        found[QUANT_FILE] = renumbered(account, new_layer, mtp, f"{name}/{QUANT_FILE}")
    return found


def _new_layer(kept: Sequence[int]) -> dict[int, int]:
    return {old: new for new, old in enumerate(kept)}


def _choice(config: Mapping[str, Any], tensors: Mapping[str, TensorEntry], where: str) -> Choice:
    """The cheapest cover by the bytes that the layers really have."""
    pattern = read_pattern(config, where).main
    layer_bytes = [0] * len(pattern)
    for tensor in tensors.values():
        layer = layer_of(tensor.name)
        if layer is not None and layer < len(pattern):
            layer_bytes[layer] += tensor.nbytes
    return choose_layers(pattern, layer_bytes)


def _check_layer_numbers(tensors: Iterable[str], layers: int, name: str) -> None:
    """Refuse a tensor of a layer that the config does not have: whether a slice should keep it cannot be known."""
    for tensor in tensors:
        layer = layer_of(tensor)
        if tensor.startswith(LAYERS_PREFIX) and (layer is None or layer >= layers):
            raise CheckpointError(f"{name}: {shown(tensor)} is in none of the {layers} layers that its config has")


def _copies(
    tensors: Mapping[str, TensorEntry], config: Mapping[str, Any], kept: Sequence[int], mtp: Mtp, name: str
) -> tuple[tuple[TensorEntry, TensorEntry], ...]:
    """What to copy, under its new name and as it is in the source.

    First what the new config promises, in its order, then whatever else belongs to the kept parts.
    """
    new_layer = _new_layer(kept)
    found: dict[str, tuple[TensorEntry, TensorEntry]] = {}
    for old in tensors.values():
        renamed = new_name(old.name, new_layer, mtp)
        if renamed is not None:
            found[renamed] = (replace(old, name=renamed), old)
    promised = [spec.name for spec in tensor_table(config, name)]
    missing = [tensor for tensor in promised if tensor not in found]
    if missing:
        hint = " Use --mtp drop to leave the MTP head out." if missing[0].startswith("mtp.") else ""
        raise CheckpointError(
            f"{name} lacks {len(missing)} tensors that its config promises for these layers; the first, under its new "
            f"name, is '{missing[0]}'.{hint}"
        )
    return (*(found.pop(tensor) for tensor in promised), *found.values())


def _parts(shard: Shard, old: Mapping[str, TensorEntry]) -> Iterator[Part]:
    """Where each tensor's bytes come from and go to."""
    offset = len(shard.header)
    for tensor in shard.tensors:
        source = old[tensor.name]
        yield Part(source.file, source.offset, source.nbytes, shard.file, offset)
        offset += source.nbytes


def _target(shard: Shard) -> Target:
    return Target(shard.file, len(shard.header) + sum(tensor.nbytes for tensor in shard.tensors), shard.header)


def _provenance(source: ByteSource, pattern: str, name: str, kept: Sequence[int], mtp: Mtp) -> dict[str, Any]:
    """Where the slice comes from; a slice of a slice keeps the earlier one's account under `source_slice`."""
    account: dict[str, Any] = {"source": name}
    if source.revision is not None:
        account["revision"] = source.revision
    account |= {
        "source_pattern": pattern,
        "layers": list(kept),
        "mtp": mtp,
        "tool": f"nemotron-rl {__version__}",
    }
    if PROVENANCE_FILE in source.files:
        account["source_slice"] = read_source_json(source, PROVENANCE_FILE)
    return account
