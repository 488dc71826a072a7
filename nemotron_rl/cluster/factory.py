"""From settings to a cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from nemotron_rl.cluster.job import Cluster
from nemotron_rl.cluster.local import LocalCluster

if TYPE_CHECKING:
    from nemotron_rl.config.run import ClusterSettings


def open_cluster(settings: ClusterSettings, environ: Mapping[str, str] | None = None) -> Cluster:
    """The cluster that the settings ask for; jobs inherit from `environ`, by default this process's environment.

    Raises InputError when Slurm is asked for and its commands are not installed.
    """
    environ = os.environ if environ is None else environ
    if settings.kind == "slurm":
        # Here: a local job starts a process that imports this package, and jinja2 and pydantic take it a second.
        from nemotron_rl.cluster.slurm import SlurmCluster

        return SlurmCluster(settings, environ)
    return LocalCluster(environ)
