"""Which of the submitter's variables a job sees: those listed here, so unrelated secrets and CUDA masks stay out."""

from __future__ import annotations

from collections.abc import Mapping

from nemotron_rl.cluster.job import JobSpec

_NAMES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
        "SLURM_CONF",
    }
)
_PREFIXES = ("NEMOTRON_RL_", "AWS_", "HF_", "NCCL_", "GLOO_", "TORCH_", "SGLANG_", "WANDB_", "MLFLOW_", "LC_")


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that a job takes over from whoever submits it."""
    return {name: value for name, value in environ.items() if name in _NAMES or name.startswith(_PREFIXES)}


def added(spec: JobSpec) -> dict[str, str]:
    """The variables that the job gets on top of the inherited ones; `spec.env` has the last word."""
    own = {"OMP_NUM_THREADS": str(spec.cpus_per_rank), "PYTHONUNBUFFERED": "1"}
    if spec.distributed and spec.nodes == 1:
        own["GLOO_SOCKET_IFNAME"] = (
            "lo"  # gloo otherwise resolves the host's name, which may not resolve or be firewalled
        )
    return own | dict(spec.env)
