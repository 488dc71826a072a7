"""Where a run lives: its files, its store and the machines that it uses."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from nemotron_rl.config.base import Frozen


class StoreSettings(Frozen):
    """The artifact store."""

    uri: str | None = None
    """`file:///path` or `s3://bucket/prefix`; None is `{output_dir}/store`."""
    endpoint: str | None = None
    """Endpoint of an S3 service that is not AWS; credentials come from the usual AWS_* environment."""
    region: str = "us-east-1"
    """S3 region."""


class ClusterSettings(Frozen):
    """Where jobs run."""

    kind: Literal["local", "slurm"] = "local"
    """`local`: processes on this machine. `slurm`: sbatch; the output folder must be on a shared file system."""
    nodes: int = Field(1, ge=1)
    """Nodes per job; ranks are spread evenly over them."""
    gpus_per_node: int = Field(0, ge=0)
    """GPUs asked for per node; 0 asks for none."""
    cpus_per_rank: int = Field(1, ge=1)
    """CPUs asked for per rank."""
    partition: str | None = None
    """Slurm partition; None is the cluster's default."""
    account: str | None = None
    """Slurm account; None is the user's default."""
    time_limit_minutes: int = Field(240, ge=1)
    """Longest run of one job; it is ended after that."""
    poll_seconds: float = Field(0.5, gt=0)
    """How often a job's state and log are read."""
