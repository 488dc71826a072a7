"""Random-weight checkpoints of any Nemotron-3 geometry, in NVIDIA's names and layout, streamed tensor by tensor."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from nemotron_rl.checkpoint.ahead import run_ahead
from nemotron_rl.checkpoint.cover import cheapest_cover
from nemotron_rl.checkpoint.geometries import preset_config, preset_generation_config
from nemotron_rl.checkpoint.initial import initial_tasks
from nemotron_rl.checkpoint.layout import CONFIG_FILE
from nemotron_rl.checkpoint.new_folder import check_new_folder, new_folder, writing
from nemotron_rl.checkpoint.progress import Meter, Progress
from nemotron_rl.checkpoint.selection import Layers, select_config
from nemotron_rl.checkpoint.spelling import read_pattern
from nemotron_rl.checkpoint.tally import Tally, tally
from nemotron_rl.checkpoint.tensor_table import TensorSpec, tensor_table
from nemotron_rl.checkpoint.tokenizer_files import write_tokenizer
from nemotron_rl.checkpoint.writer import DEFAULT_SHARD_SIZE, ShardWriter, plan_shards, write_json
from nemotron_rl.config.base import Frozen

TINY_SHARD_SIZE = 2_000_000
"""Small enough that `tiny` has several shards, so that every test reads an index and more than one file."""


class SynthReport(Frozen):
    """What was, or would be, written."""

    preset: str
    seed: int
    pattern: str
    """With the MTP head after a slash."""
    tally: Tally
    shards: int
    shard_size: int
    """Largest number of tensor bytes in a shard."""


@dataclass(frozen=True)
class _Plan:
    config: dict[str, Any]
    specs: tuple[TensorSpec, ...]
    report: SynthReport


def plan_synth(
    preset: str,
    *,
    seed: int = 0,
    overrides: Mapping[str, int] | None = None,
    layers: Layers = None,
    shard_size: int | None = None,
) -> SynthReport:
    """What `synthesize` with the same arguments would write: tensors, parameters and bytes per block type.

    Raises:
        SettingsError: Unknown preset or override, or sizes that do not fit each other.
        SliceError: `layers` cannot be chosen so.
    """
    return _plan(preset, seed, overrides, layers, shard_size).report


def synthesize(
    preset: str,
    out: Path,
    *,
    seed: int = 0,
    overrides: Mapping[str, int] | None = None,
    layers: Layers = None,
    shard_size: int | None = None,
    progress: Progress | None = None,
) -> SynthReport:
    """Write a checkpoint with random weights into `out`, which appears complete or not at all.

    Equal presets, overrides, layers and seeds give equal tensors, whatever the shard size.

    Args:
        preset: One of `geometries.preset_names()`.
        out: A folder that does not exist or is empty.
        seed: Seed of every tensor.
        overrides: New values of config keys in `geometries.SCALABLE`.
        layers: Only these layers of the preset's pattern (`auto`: the cheapest cover), renumbered; their weights are
            drawn under the new numbers.
        shard_size: Bytes of tensors per shard; by default 5 GB, for `tiny` 2 MB.
        progress: Told about the tensors' bytes.

    Raises:
        SettingsError: Unknown preset or override, or sizes that do not fit each other.
        SliceError: `layers` cannot be chosen so.
        InputError: `out` is taken or cannot be written.
    """
    check_new_folder(out)
    plan = _plan(preset, seed, overrides, layers, shard_size)
    meter = Meter(plan.report.tally.total.nbytes, progress)
    depth = int(plan.config["num_hidden_layers"])
    with new_folder(out) as partial:
        with ShardWriter(partial, plan_shards(plan.specs, plan.report.shard_size)) as writer:
            _write_values(writer, plan.specs, seed, depth, meter)
        with writing(out):
            write_json(partial / CONFIG_FILE, plan.config)
            write_json(partial / "generation_config.json", preset_generation_config(preset))
            write_tokenizer(partial, plan.config["vocab_size"], plan.config["max_position_embeddings"])
    return plan.report


def _plan(
    preset: str,
    seed: int,
    overrides: Mapping[str, int] | None,
    layers: Layers,
    shard_size: int | None,
) -> _Plan:
    whole = preset_config(preset, overrides)
    kept = cheapest_cover(read_pattern(whole).main) if isinstance(layers, str) else layers
    config = select_config(whole, kept, "keep", f"preset {preset}")
    specs = tuple(tensor_table(config, f"preset {preset}"))
    size = shard_size or (TINY_SHARD_SIZE if preset == "tiny" else DEFAULT_SHARD_SIZE)
    pattern = read_pattern(config)
    report = SynthReport(
        preset=preset,
        seed=seed,
        pattern=str(pattern),
        tally=tally(specs, pattern),
        shards=len(plan_shards(specs, size)),
        shard_size=size,
    )
    return _Plan(config, specs, report)


def _write_values(writer: ShardWriter, specs: Sequence[TensorSpec], seed: int, depth: int, meter: Meter) -> None:
    """Draw the tensors in as many threads as there are processors, and write them in order."""
    tasks = chain.from_iterable(initial_tasks(spec, seed, depth) for spec in specs)
    with closing(run_ahead(tasks, len(os.sched_getaffinity(0)))) as drawn:
        for spec in specs:
            parts = islice(drawn, len(initial_tasks(spec, seed, depth)))
            writer.write(spec.name, _metered(chain.from_iterable(parts), meter))


def _metered(chunks: Iterable[memoryview], meter: Meter) -> Iterator[memoryview]:
    for chunk in chunks:
        yield chunk
        meter.add(len(chunk))
