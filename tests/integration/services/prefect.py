"""A real Prefect server and a process worker, with a home of their own."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.services.daemon import daemon
from tests.ports import free_ports

_PREFECT = str(Path(sys.executable).with_name("prefect"))


@dataclass(frozen=True)
class PrefectServer:
    """A running server."""

    port: int
    home: Path
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def api(self) -> str:
        """The API's address."""
        return f"http://127.0.0.1:{self.port}/api"

    @property
    def program(self) -> str:
        """Prefect's command line."""
        return _PREFECT

    @property
    def environ(self) -> dict[str, str]:
        """The environment of its clients, its worker and the flow runs."""
        return {
            **os.environ,
            "PREFECT_HOME": str(self.home),
            "PREFECT_API_URL": self.api,
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "NO_COLOR": "1",
            **self.extra,
        }

    def ask(self, path: str, body: object | None = None) -> Any:
        """GET, or POST with a body: the JSON answer."""
        request = urllib.request.Request(f"{self.api}{path}", headers={"content-type": "application/json"})
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(request, data=data, timeout=30) as answer:
            return json.load(answer)

    def healthy(self) -> bool:
        """Whether the server answers."""
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            return bool(self.ask("/health"))
        return False


@contextlib.contextmanager
def prefect_server(extra: Mapping[str, str] | None = None) -> Iterator[PrefectServer]:
    """A server with its own SQLite database on a free loopback port. `extra` is added to its clients' environment."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="prefect-") as folder:
        server = PrefectServer(port, Path(folder), extra or {})
        environ = server.environ | {
            "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{folder}/server.db",
            "PREFECT_SERVER_UI_API_URL": server.api,
        }
        del environ["PREFECT_API_URL"]
        argv = (_PREFECT, "server", "start", "--host", "127.0.0.1", "--port", str(port))
        log = server.home / "server.log"
        with daemon(argv, environ=environ, log=log, ready=server.healthy, ports=[port], seconds=180):
            yield server


@contextlib.contextmanager
def prefect_worker(server: PrefectServer, pool: str) -> Iterator[Path]:
    """A process worker that is online in the pool, which is created if need be. Yields the path of its log."""
    name, log = f"worker-of-{pool}", server.home / f"worker-{pool}.log"
    argv = (_PREFECT, "worker", "start", "--pool", pool, "--type", "process", "--name", name)

    def online() -> bool:
        with contextlib.suppress(urllib.error.HTTPError):
            workers = server.ask(f"/work_pools/{pool}/workers/filter", {})
            return any(worker["name"] == name and worker["status"] == "ONLINE" for worker in workers)
        return False

    with daemon(argv, environ=server.environ, log=log, ready=online, seconds=120):
        yield log
