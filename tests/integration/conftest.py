"""Real services for the integration tests, started once per module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.services.slurm import Slurm, slurm_cluster


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with slurm_cluster(nodes=2) as cluster:
        yield cluster
