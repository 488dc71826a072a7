"""Finds what is wrong with a run's input before anything is written. Knows nothing of Prefect."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nemotron_rl.checkpoint.geometries import preset_config
from nemotron_rl.checkpoint.layout import CheckpointFolder
from nemotron_rl.checkpoint.selection import select_config
from nemotron_rl.checkpoint.source import open_source, source_name, validate_uri
from nemotron_rl.cluster import open_cluster
from nemotron_rl.config.settings import Settings
from tasks.prompts import read_prompts
from tasks.stage import run_store


def preflight(settings: Settings) -> None:
    """Check the source, the choice of layers, the prompt files, the cluster's commands, and last the store.

    Raises:
        InputError: One of them cannot work. Nothing was left behind.
    """
    uri = settings.source.uri
    validate_uri(uri)
    config = _config_at_hand(uri)
    if config is not None:
        select_config(config, settings.slice.layers, settings.slice.mtp, source_name(uri))
    read_prompts(settings.data)
    open_cluster(settings.cluster)
    run_store(settings).check_writable()


def _config_at_hand(uri: str) -> Mapping[str, Any] | None:
    """config.json of a source that need not be fetched; a local folder's files are checked too. None: it is remote."""
    scheme, separator, rest = uri.partition("://")
    if separator and scheme == "synth":
        return preset_config(rest)
    if separator and scheme != "file":
        return None
    return CheckpointFolder.open(open_source(uri, cache_dir=Path())).config  # a local folder: nothing is fetched
