"""Where a job runs: processes of this machine, or Slurm. One protocol, `Cluster`; no torch and no Prefect."""

from __future__ import annotations

from nemotron_rl.cluster.factory import open_cluster
from nemotron_rl.cluster.failure import read_failure, report_failure
from nemotron_rl.cluster.job import Cluster, JobHandle, JobSpec, JobState, JobStatus
from nemotron_rl.cluster.run import run_job

__all__ = [
    "Cluster",
    "JobHandle",
    "JobSpec",
    "JobState",
    "JobStatus",
    "open_cluster",
    "read_failure",
    "report_failure",
    "run_job",
]
