"""A real Slurm cluster on this host: munged, slurmctld and one slurmd per node, all on loopback and in one folder."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jinja2
import pytest

from tests.integration.services.daemon import daemon, listening, wait_until
from tests.ports import free_ports

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun")


@dataclass(frozen=True)
class Node:
    """One slurmd."""

    name: str
    port: int


@dataclass(frozen=True)
class Slurm:
    """A running cluster."""

    folder: Path
    port: int
    nodes: tuple[Node, ...]

    @property
    def environ(self) -> dict[str, str]:
        """The environment of its clients."""
        return {**os.environ, **self.client_environ}

    @property
    def client_environ(self) -> dict[str, str]:
        """What its clients need in their environment beside their own."""
        return {"PATH": _path(), "SLURM_CONF": str(self.folder / "slurm.conf")}

    def run(self, *argv: str) -> str:
        """One of Slurm's commands, and what it prints."""
        done = subprocess.run(argv, env=self.environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{argv}: {done.stderr}"
        return done.stdout.strip()

    @contextlib.contextmanager
    def controller(self) -> Iterator[None]:
        """slurmctld, until the block ends; its state survives, so it can be started again."""
        argv = (_program("slurmctld"), "-D", "-f", str(self.folder / "slurm.conf"))
        log = self.folder / "slurmctld.out"
        with daemon(argv, environ=self.environ, log=log, ready=lambda: listening(self.port), ports=[self.port]):
            yield

    def ended_jobs(self) -> list[dict[str, str]]:
        """What Slurm recorded of every job that ended, by Slurm's own names."""
        lines = (self.folder / "jobcomp.txt").read_text().splitlines()
        return [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines]

    def idle_nodes(self) -> int:
        """How many nodes can take a job."""
        return len(self.run("sinfo", "--noheader", "--Node", "--states=idle", "--format=%N").split())


@contextlib.contextmanager
def slurm_cluster(nodes: int = 2, *, min_job_age: int = 300, controller: bool = True) -> Iterator[Slurm]:
    """A cluster of idle nodes with 4 cores and 2 pretended GPUs each; gone, with all its jobs, when the block ends.

    `min_job_age`: seconds for which the controller remembers an ended job. `controller=False`: the caller starts it.
    """
    _require_programs()
    ports = free_ports(nodes + 1)
    with contextlib.ExitStack() as stack:
        # Not pytest's folder: the paths of sockets must stay under 108 bytes.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slurm-")))
        slurm = Slurm(folder, ports[0], tuple(Node(f"n{i + 1}", port) for i, port in enumerate(ports[1:])))
        _configure(slurm, min_job_age)
        stack.enter_context(_munge(slurm))
        if controller:
            stack.enter_context(slurm.controller())
        for node in slurm.nodes:
            stack.enter_context(_node(slurm, node))
        if controller:
            wait_until(lambda: slurm.idle_nodes() == nodes, "idle nodes")
            stack.callback(_end_jobs, slurm)
        yield slurm
    assert not folder.exists()


def _configure(slurm: Slurm, min_job_age: int) -> None:
    template = jinja2.Template(Path(__file__).with_name("slurm.conf.j2").read_text(), trim_blocks=True)
    text = template.render(
        folder=slurm.folder, port=slurm.port, nodes=slurm.nodes, user=getpass.getuser(), min_job_age=min_job_age
    )
    (slurm.folder / "slurm.conf").write_text(text)
    for gpu in range(2):  # any character device will do for scheduling
        (slurm.folder / f"gpu{gpu}").symlink_to(os.devnull)
    (slurm.folder / "gres.conf").write_text(f"Name=gpu File={slurm.folder}/gpu[0-1]\n")
    for name in ("munge", "state", *(f"spool-{node.name}" for node in slurm.nodes)):
        (slurm.folder / name).mkdir(mode=0o700)


def _munge(slurm: Slurm) -> contextlib.AbstractContextManager[object]:
    folder = slurm.folder / "munge"
    key = folder / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(1024))
    files = ("socket", "pid-file", "log-file", "seed-file")
    paths = (f"--{name}={folder}/{name.removesuffix('-file')}" for name in files)
    argv = (_program("munged"), "--foreground", "--force", f"--key-file={key}", "--num-threads=2", *paths)
    socket = folder / "socket"
    return daemon(argv, environ=slurm.environ, log=folder / "out", ready=socket.exists)


def _node(slurm: Slurm, node: Node) -> contextlib.AbstractContextManager[object]:
    argv = (_program("slurmd"), "-D", "-f", str(slurm.folder / "slurm.conf"), "-N", node.name)
    log = slurm.folder / f"slurmd-{node.name}.out"
    return daemon(argv, environ=slurm.environ, log=log, ready=lambda: listening(node.port), ports=[node.port])


def _end_jobs(slurm: Slurm) -> None:
    """Cancel what still runs, and wait until the queue is empty and no step is left on any node."""
    slurm.run("scancel", "--me")
    wait_until(lambda: slurm.run("squeue", "--noheader") == "", "an empty queue")
    steps = [f"spool-{node.name}/{node.name}_*" for node in slurm.nodes]  # sockets of slurmstepd
    wait_until(lambda: not any(list(slurm.folder.glob(step)) for step in steps), "the end of all job steps")


def _path() -> str:
    """PATH with the folders of daemons, which users' shells often lack."""
    return os.pathsep.join((os.environ["PATH"], "/usr/sbin", "/sbin"))


def _program(name: str) -> str:
    found = shutil.which(name, path=_path())
    assert found is not None, f"{name} is not installed; see tests/integration/apt-packages.txt"
    return found


def _require_programs() -> None:
    """Skip where Slurm is not installed; on CI that is a failure."""
    missing = [name for name in _PROGRAMS if shutil.which(name, path=_path()) is None]
    if missing:
        reason = f"{', '.join(missing)} not installed; apt-get install what tests/integration/apt-packages.txt lists"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
