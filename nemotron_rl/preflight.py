"""Everything that can be known to go wrong before anything is started: bad input then costs seconds and leaves nothing.

The stages check again what they read; this only says it earlier.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from nemotron_rl.checkpoint.geometries import geometry, preset_config, preset_names
from nemotron_rl.checkpoint.layout import CheckpointFolder
from nemotron_rl.checkpoint.selection import select_config
from nemotron_rl.checkpoint.source import open_source, validate_uri
from nemotron_rl.checkpoint.spelling import read_pattern
from nemotron_rl.cluster.factory import open_cluster
from nemotron_rl.config.colocation import check_colocation
from nemotron_rl.config.geometry import Geometry
from nemotron_rl.config.parallel import check_parallel
from nemotron_rl.config.routing import check_expert_bias, replays_routes
from nemotron_rl.config.settings import Settings
from nemotron_rl.data.prompts import load_prompts
from nemotron_rl.errors import InputError
from nemotron_rl.megatron.checkpointing.choice import check_resume
from nemotron_rl.paths import check_path, nearest_existing
from nemotron_rl.store.artifacts import open_store


def preflight(settings: Settings, *, surroundings: bool = True) -> None:
    """Check source, layers, split, prompts, resumed checkpoint, output folder, store and cluster; changes nothing.

    Args:
        settings: The run's.
        surroundings: Whether an S3 store is asked for a probe and Slurm's commands must be there.

    Raises:
        InputError: One of them cannot work.
    """
    check_source(settings)
    check_colocation(settings)
    for path in (settings.data.train_file, settings.data.eval_file):
        if path is not None:
            load_prompts(path)
    check_writable(settings.output_dir)
    check_resume(settings.run_dir, settings)
    check_store(settings, probe=surroundings)
    if surroundings:
        open_cluster(settings.cluster)


def check_source(settings: Settings) -> None:
    """The source exists and is whole, has the layers, and can be split; remote sources as far as their name tells."""
    config = _sliced_config(settings)
    if config is not None:
        check_split(settings, config)
        replays_routes(settings, _moe_layers(config))
        pattern = read_pattern(config)
        check_expert_bias(settings, pattern.main, pattern.mtp)


def known_moe_layers(settings: Settings) -> int | None:
    """Mixture-of-experts layers in the trunk of the model that the run trains; None for a remote, unknown model."""
    config = _sliced_config(settings)
    return None if config is None else _moe_layers(config)


def _moe_layers(config: Mapping[str, Any]) -> int:
    return read_pattern(config).main.count("E")


def run_config(settings: Settings) -> Mapping[str, Any]:
    """config.json of the model that the run trains, split as the settings say, without fetching anything.

    Raises:
        InputError: the source is remote and not well known, has not the layers, or cannot be split like this.
    """
    config = _sliced_config(settings)
    if config is None:
        raise InputError(
            f"the sizes of {settings.source.uri} are not known without downloading it\n"
            f"  Give a local folder with its config.json, or synth://PRESET: {', '.join(preset_names())}."
        )
    check_split(settings, config)
    return config


def check_split(settings: Settings, config: Mapping[str, Any]) -> None:
    """A model of this config can be split over the run's ranks.

    Raises:
        SettingsError: It cannot; offers the nearest split that can.
    """
    check_parallel(settings.parallel, n_layers=len(read_pattern(config).main), **vars(split_limits(config)))


def split_limits(config: Mapping[str, Any]) -> Geometry:
    """The sizes of a config that a split must divide."""
    return Geometry(
        n_groups=int(config["n_groups"]),
        n_heads=int(config["num_attention_heads"]),
        n_kv_heads=int(config["num_key_value_heads"]),
        n_experts=int(config.get("n_routed_experts") or 0),
        n_mamba_heads=int(config["mamba_num_heads"]),
        expert_width=int(config.get("moe_intermediate_size") or 0),
    )


def _sliced_config(settings: Settings) -> dict[str, Any] | None:
    """config.json of the layers that are kept; None for a remote model that is not well known."""
    uri = settings.source.uri
    validate_uri(uri)
    config = _known_config(uri)
    return None if config is None else select_config(config, settings.slice.layers, settings.slice.mtp, uri)


def _known_config(uri: str) -> Mapping[str, Any] | None:
    """The source's config.json without fetching it; None for a remote model that is not well known."""
    scheme, separator, rest = uri.partition("://")
    if scheme == "synth":
        return preset_config(rest)
    if scheme == "hf":
        model = rest.partition("@")[0].rpartition("/")[2]
        return next((preset_config(name) for name in preset_names() if geometry(name).model == model), None)
    if separator and scheme != "file":
        return None
    return CheckpointFolder.open(open_source(uri, cache_dir=Path())).config  # a local folder: nothing is fetched


def check_writable(folder: Path) -> None:
    """A file can be made in the folder, or in the nearest folder above it that exists.

    Raises:
        InputError: It cannot, it is no path, or something that is no folder is in the way.
    """
    check_path(folder)
    existing = nearest_existing(folder.absolute())
    try:
        with tempfile.TemporaryDirectory(prefix=".nemotron-rl-probe-", dir=existing):
            pass
    except OSError as error:
        raise InputError(
            f"cannot write to {folder} ({existing}: {error.strerror})\n  Choose another folder, with --output-dir DIR."
        ) from error


def check_store(settings: Settings, *, probe: bool) -> None:
    """The store's address is one, and the store takes files; of an S3 store only if a probe is allowed."""
    store = open_store(settings.store, settings.store_uri, settings.output_dir / "cache")
    parts = urlsplit(settings.store_uri)
    if parts.scheme == "file":
        check_writable(Path(unquote(parts.path)))
    elif probe:
        store.check_writable()
