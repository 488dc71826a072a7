"""What the tests of jobs share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.jobs.ranks import Ranks, rank_server


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """Starts real ranks, for one file of tests."""
    with rank_server(tmp_path_factory.mktemp("ranks") / "server.log") as server:
        yield server
