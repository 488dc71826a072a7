"""What a checkpoint is and what is wrong with it, as numbers; drawing tables is `nemotron_rl.report`'s."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from nemotron_rl.checkpoint.finite import Scan, scan_tensors
from nemotron_rl.checkpoint.geometries import Certainty, certainty, preset_config, preset_of
from nemotron_rl.checkpoint.layout import CONFIG_FILE, TensorEntry, read_source_json, source_layout
from nemotron_rl.checkpoint.progress import Progress
from nemotron_rl.checkpoint.ranged.folder import FolderSource
from nemotron_rl.checkpoint.ranged.source import ByteSource
from nemotron_rl.checkpoint.spelling import read_pattern
from nemotron_rl.checkpoint.strict_json import shortened, shown
from nemotron_rl.checkpoint.synth import plan_synth
from nemotron_rl.checkpoint.tally import Sized, Tally, tally
from nemotron_rl.checkpoint.tensor_table import TensorSpec, tensor_table
from nemotron_rl.config.base import Frozen

_SHOWN = 5


class Inspection(Frozen):
    """A checkpoint at a glance. `model_dump_json()` is its JSON form."""

    name: str
    """The folder's name, or the address."""
    architecture: str
    """First of the config's `architectures`."""
    pattern: str
    """The trunk's pattern."""
    mtp_pattern: str
    """The MTP head's pattern, empty without one."""
    mtp_depth: int
    """Steps of the MTP head."""
    tally: Tally
    dtypes: dict[str, int]
    """Number of tensors by safetensors type."""
    files: int
    """Number of shards."""
    geometry: Certainty | None
    """The preset that has these sizes, and how certain its values are."""
    scan: Scan | None
    """What a scan for NaN and infinity found, where one was asked for."""
    problems: tuple[str, ...]
    """One sentence each; empty for a sound checkpoint."""


def inspect_checkpoint(
    src: Path | ByteSource, *, name: str | None = None, scan: bool = False, progress: Progress | None = None
) -> Inspection:
    """Read config, index and headers, count, and compare with what the config promises.

    Args:
        src: A checkpoint folder, or another place with one; only headers are fetched.
        name: What to call it; by default the folder's name or the address.
        scan: Read every tensor too, and look for NaN and infinity.
        progress: Told about the bytes that a scan reads.

    Raises:
        CheckpointError: No such checkpoint, no weights, or a config that cannot be understood. Everything else is a
            problem in the result.
        SourceUnavailable: The source cannot be read.
    """
    source = FolderSource(src) if isinstance(src, Path) else src
    config = read_source_json(source, CONFIG_FILE)
    where = f"{source.where}/{CONFIG_FILE}"
    read_pattern(config, where)
    promised = {spec.name: spec for spec in tensor_table(config, where)}
    layout = source_layout(source)
    tensors = layout.tensors
    scanned = scan_tensors(source, tensors.values(), progress) if scan else None
    return _inspection(
        name=name or (src.absolute().name if isinstance(src, Path) else source.where),
        config=config,
        tensors=tensors.values(),
        files=len({entry.file for entry in tensors.values()}),
        scan=scanned,
        problems=(*layout.problems, *_broken_promises(promised, tensors), *_not_finite(scanned)),
    )


def inspect_preset(preset: str) -> Inspection:
    """The checkpoint that `synth` would make of a preset; nothing is made.

    Raises:
        SettingsError: Unknown preset.
    """
    config = preset_config(preset)
    tensors = list(tensor_table(config))
    files = plan_synth(preset).shards
    return _inspection(name=f"synth://{preset}", config=config, tensors=tensors, files=files, scan=None, problems=())


class _Tensor(Sized, Protocol):
    @property
    def dtype(self) -> str: ...


def _inspection(
    *,
    name: str,
    config: Mapping[str, Any],
    tensors: Iterable[_Tensor],
    files: int,
    scan: Scan | None,
    problems: tuple[str, ...],
) -> Inspection:
    pattern, preset = read_pattern(config), preset_of(config)
    return Inspection(
        name=name,
        architecture=_architecture(config),
        pattern=pattern.main,
        mtp_pattern=pattern.mtp,
        mtp_depth=pattern.mtp_depth,
        tally=tally(tensors, pattern),
        dtypes=dict(sorted(Counter(tensor.dtype for tensor in tensors).items())),
        files=files,
        geometry=certainty(preset) if preset else None,
        scan=scan,
        problems=problems,
    )


def _architecture(config: Mapping[str, Any]) -> str:
    names = config.get("architectures")
    if not isinstance(names, list) or not names:
        return "unknown"
    return shortened(names[0]) if isinstance(names[0], str) else shown(names[0])


def _broken_promises(promised: Mapping[str, TensorSpec], tensors: Mapping[str, TensorEntry]) -> list[str]:
    """Where the tensors differ from those that the config describes."""
    both = [(spec, tensors[name]) for name, spec in promised.items() if name in tensors]
    shapes = [
        f"{spec.name} is {list(entry.shape)}, expected {list(spec.shape)}"
        for spec, entry in both
        if spec.shape != entry.shape
    ]
    dtypes = [
        f"{spec.name} is {entry.dtype}, expected {spec.dtype}" for spec, entry in both if spec.dtype != entry.dtype
    ]
    groups = {
        "tensors that the config promises are missing": [name for name in promised if name not in tensors],
        "tensors are not part of the model that the config describes": [
            name for name in tensors if name not in promised
        ],
        "tensors have another shape than the config says": shapes,
        "tensors have another dtype than the config says": dtypes,
    }
    return [_summary(what, items) for what, items in groups.items() if items]


def _not_finite(scan: Scan | None) -> list[str]:
    """What a scan found, as a problem."""
    if scan is None or not scan.not_finite:
        return []
    items = [f"{found.name} ({found.nan:,} NaN, {found.inf:,} Inf)" for found in scan.not_finite]
    return [_summary("tensors hold values that are not finite", items)]


def _summary(what: str, items: list[str]) -> str:
    rest = f", and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return f"{len(items)} {what}: {', '.join(map(shortened, items[:_SHOWN]))}{rest}"
