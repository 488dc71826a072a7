"""The nightly deployment on real surroundings: a Prefect server and worker, Slurm with two nodes, and S3."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from nemotron_rl.cluster.process import tagged
from nemotron_rl.store import Manifest
from tests.integration.services.prefect import PrefectServer, prefect_server, prefect_worker
from tests.integration.services.s3 import S3, s3_server
from tests.integration.services.slurm import Slurm, slurm_cluster

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

_ROOT = Path(__file__).parents[2]
_PREFECT_FILE = _ROOT / "deployments" / "prefect.yaml"
_DEPLOYMENT = "validate/nightly-4layer"
_MARK = "NEMOTRON_RL_TEST_RUN"
"""Variable that the worker, its flow run and every Slurm job inherit."""
_SMALL = {
    "train.steps": 2,
    "train.prompts_per_step": 4,
    "warmup.steps": 4,
    "warmup.optimizer.warmup_steps": 1,
    "data.eval_prompts": 4,
    "parallel.world_size": 2,
    "cluster.kind": "slurm",
    "cluster.nodes": 2,
    "model.threads": 1,
    "gates.reward_gain_min": None,
}


@dataclass(frozen=True)
class Finished:
    """What is left to look at once the deployment has run."""

    flow_run: dict[str, Any]
    task_runs: list[dict[str, Any]]
    artifacts: list[dict[str, Any]]
    keys: set[str]
    objects: dict[str, bytes]
    slurm_jobs: list[dict[str, str]]
    mark: str


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    """The deployment's run, after every service has been ended."""
    folder, mark = tmp_path_factory.mktemp("runs"), uuid.uuid4().hex
    with slurm_cluster(nodes=2) as slurm, s3_server() as s3:
        # Both nodes are this host, whose own name may not resolve.
        extra = s3.environ | slurm.client_environ | {_MARK: mark, "GLOO_SOCKET_IFNAME": "lo"}
        with prefect_server(extra) as server, prefect_worker(server, _pool()) as worker_log:
            _prefect(server, "--no-prompt", "deploy", "--all", "--prefect-file", str(_PREFECT_FILE))
            flow_run = _run_deployment(server, s3, folder, worker_log)
            found = _look(server, s3, slurm, flow_run, mark)
    yield found


def test_the_run_completed(finished: Finished) -> None:
    assert finished.flow_run["state_type"] == "COMPLETED"
    states = {run["name"]: run["state_type"] for run in finished.task_runs}
    assert set(states.values()) == {"COMPLETED"}, states
    assert {run.rsplit("-", 1)[0] for run in states} >= {"download", "slice", "train", "evaluate", "gate", "publish"}


def test_its_artifacts_are_in_the_api(finished: Finished) -> None:
    by_key = {artifact["key"]: artifact for artifact in finished.artifacts}
    assert set(by_key) >= {"results", "report", "train-progress", "training-steps", "reward-plot", "logprob-plot"}
    assert by_key["results"]["type"] == "table"
    assert by_key["report"]["type"] == "markdown"
    assert by_key["train-progress"]["data"] == 100.0


def test_every_manifest_in_the_bucket_names_only_objects_that_are_there(finished: Finished) -> None:
    manifests = [key for key in finished.keys if key.endswith("/manifest.json")]
    assert {key.split("/")[1] for key in manifests} >= {"slice", "convert", "train", "evaluate", "report"}
    for key in manifests:
        manifest = Manifest.model_validate_json(finished.objects[key])
        for file in manifest.files:
            content = finished.objects[f"{key.removesuffix('manifest.json')}files-{manifest.attempt}/{file.path}"]
            assert (len(content), hashlib.sha256(content).hexdigest()) == (file.size, file.sha256), file.path


def test_training_ran_on_both_nodes_of_slurm(finished: Finished) -> None:
    ended = {job["Name"].split(".")[-2]: job for job in finished.slurm_jobs}
    assert set(ended) == {"convert", "warmup", "train", "evaluate"}
    assert {job["JobState"] for job in ended.values()} == {"COMPLETED"}
    assert (ended["train"]["NodeCnt"], ended["evaluate"]["NodeCnt"]) == ("2", "1")


def test_nothing_is_left(finished: Finished) -> None:
    """Each service has proved it for its own processes, ports and folder on the way here."""
    assert tagged(_MARK, finished.mark) == []


def _pool() -> str:
    """The work pool that the deployments name."""
    described = yaml.safe_load(_PREFECT_FILE.read_text())
    (found,) = {each["work_pool"]["name"] for each in described["deployments"]}
    return str(found)


def _prefect(server: PrefectServer, *arguments: str) -> str:
    argv = (server.program, *arguments)
    done = subprocess.run(argv, cwd=_ROOT, env=server.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _run_deployment(server: PrefectServer, s3: S3, folder: Path, worker_log: Path) -> str:
    """Run the deployment to its end, and return the flow run's id. (The cron schedule has planned others.)"""
    overrides = _SMALL | {"store.uri": f"s3://{s3.bucket}/nightly", "store.endpoint": s3.endpoint}
    parameters = {"preset": "tiny", "output_dir": str(folder), "overrides": overrides}
    given = [part for name, value in parameters.items() for part in ("--param", f"{name}={json.dumps(value)}")]
    try:
        told = _prefect(server, "deployment", "run", _DEPLOYMENT, *given, "--watch")
    except AssertionError as error:
        error.add_note(worker_log.read_text()[-8000:])
        raise
    found = re.search(r"UUID: (\S+)", told)
    assert found is not None, told
    return found[1]


def _look(server: PrefectServer, s3: S3, slurm: Slurm, flow_run: str, mark: str) -> Finished:
    of_this_run = {"flow_runs": {"id": {"any_": [flow_run]}}}
    keys = s3.keys("nightly/")
    return Finished(
        flow_run=server.ask(f"/flow_runs/{flow_run}"),
        task_runs=server.ask("/task_runs/filter", of_this_run),
        artifacts=server.ask("/artifacts/filter", of_this_run),
        keys=keys,
        objects={key: s3.read(key) for key in keys},
        slurm_jobs=slurm.ended_jobs(),
        mark=mark,
    )
