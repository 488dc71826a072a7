"""A Hugging Face Hub for tests: one repository out of a folder, over HTTP on loopback, by the client's own protocol."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Serves `org/name` at revisions `main` and `v1`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[str] = []
        self.url = ""

    def entry(self, path: Path) -> dict[str, Any]:
        oid = hashlib.sha1(path.read_bytes()).hexdigest()
        return {"type": "file", "path": path.name, "rfilename": path.name, "size": path.stat().st_size, "oid": oid}

    def answer(self, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
        self.requests.append(f"{method} {path}")
        if not re.match(r"(/api/models)?/org/name(/|$)", path):
            return 404, {"X-Error-Code": "RepoNotFound"}, b""
        revision = re.search(r"/(?:revision|tree|resolve)/([^/]+)", path)
        if revision and revision[1] not in ("main", "v1", COMMIT):
            return 404, {"X-Error-Code": "RevisionNotFound"}, b""
        files = sorted(self.folder.iterdir())
        if "/tree/" in path:
            return 200, {}, json.dumps([self.entry(file) for file in files]).encode()
        if path.startswith("/api/"):
            info = {"id": "org/name", "sha": COMMIT, "siblings": [self.entry(file) for file in files], "private": False}
            return 200, {}, json.dumps(info | {"tags": [], "downloads": 0, "likes": 0}).encode()
        file = self.folder / path.rsplit("/", 1)[-1]
        etag = f'"{self.entry(file)["oid"]}"'
        return 200, {"X-Repo-Commit": COMMIT, "ETag": etag, "Accept-Ranges": "bytes"}, file.read_bytes()


@contextmanager
def serving(folder: Path) -> Iterator[Hub]:
    """A running hub; `hub.url` is what HF_ENDPOINT has to be."""
    hub = Hub(folder)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer("GET")

        def do_HEAD(self) -> None:
            self._answer("HEAD")

        def _answer(self, method: str) -> None:
            status, headers, body = hub.answer(method, self.path.split("?")[0])
            self.send_response(status)
            for key, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(key, value)
            self.end_headers()
            if method == "GET":
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
