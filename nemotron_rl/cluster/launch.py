"""The command line of a job: plain, or under torchrun. Pure; nothing is started here."""

from __future__ import annotations

from nemotron_rl.cluster.job import JobSpec
from nemotron_rl.errors import InputError


def command(spec: JobSpec) -> tuple[str, ...]:
    """The command that one node runs.

    On one node torchrun meets itself on a free loopback port. On several, every node gets the same command and takes
    its own rank and the meeting point from PET_NODE_RANK and PET_RDZV_ENDPOINT, torchrun's variables for arguments
    that are not given. The static backend makes rank 0 live on the first node every time; c10d would number the nodes
    in the order in which they happen to arrive.
    """
    if not spec.distributed:
        return spec.argv
    python, *program = spec.argv
    if not program or (program[0] != "-m" and not program[0].endswith(".py")):
        raise InputError(f"job {spec.key}: a distributed command starts with (python, '-m', module), got {spec.argv}")
    meeting = (
        ("--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1")
        if spec.nodes == 1
        else ("--rdzv-backend=static",)
    )
    return (
        python,
        "-m",
        "torch.distributed.run",
        f"--nnodes={spec.nodes}",
        f"--nproc-per-node={spec.ranks_per_node}",
        f"--rdzv-id={spec.key}",
        *meeting,
        "--max-restarts=0",
        *program,
    )
