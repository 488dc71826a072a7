"""A Hugging Face Hub for tests: one repository out of a folder, over HTTP on loopback, by the client's own protocol.

It counts the bytes that it sends, and can be told to misbehave. With a `cdn`, weights are redirected to a second
server, as the real Hub does.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Answer:
    """What is sent back; a fault may change it."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut: int | None = None
    """Send this many bytes of the body, then hang up."""


@dataclass(frozen=True)
class Fetched:
    """One range of a file that was sent."""

    file: str
    start: int
    size: int


Fault = Callable[[str, Answer], None]
"""Called with a file's name and the right answer to a request for (a part of) it."""


class Hub:
    """Serves `org/name` at revisions `main` and `v1`."""

    def __init__(self, folder: Path, cdn: Hub | None = None, pause_s: float = 0.0) -> None:
        self.folder, self.cdn, self.pause_s = folder, cdn, pause_s
        self.requests: list[str] = []
        self.authorizations: list[str | None] = []
        self.fetched: list[Fetched] = []
        self.faults: list[Fault] = []
        """Used up one per request for a file, first come first served."""
        self.always: Fault | None = None
        self.url = ""
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._digests: dict[tuple[str, int, int], str] = {}

    @property
    def bytes_sent(self) -> int:
        return sum(part.size for part in self.fetched)

    def entry(self, path: Path) -> dict[str, Any]:
        state = path.stat()
        name, size, oid = path.name, state.st_size, self._digest(path, state.st_size, state.st_mtime_ns)
        return {"type": "file", "path": name, "rfilename": name, "size": size, "oid": oid, "blobId": oid}

    def _digest(self, path: Path, size: int, written_ns: int) -> str:
        """Of its content, read once for each state of the file: there may be gigabytes of it."""
        key = (path.name, size, written_ns)
        with self._reading:
            if key not in self._digests:
                with path.open("rb") as file:
                    self._digests[key] = hashlib.file_digest(file, "sha1").hexdigest()
            return self._digests[key]

    def answer(self, method: str, path: str, headers: dict[str, str]) -> Answer:
        with self._lock:
            self.requests.append(f"{method} {path}")
            self.authorizations.append(headers.get("authorization"))
        if not re.match(r"(/api/models)?/org/name(/|$)", path):
            return Answer(404, {"X-Error-Code": "RepoNotFound"})
        revision = re.search(r"/(?:revision|tree|resolve)/([^/]+)", path)
        if revision and revision[1] not in ("main", "v1", COMMIT):
            return Answer(404, {"X-Error-Code": "RevisionNotFound"})
        files = sorted(self.folder.iterdir())
        if "/tree/" in path:
            return Answer(200, {}, json.dumps([self.entry(file) for file in files]).encode())
        if path.startswith("/api/"):
            info = {"id": "org/name", "sha": COMMIT, "siblings": [self.entry(file) for file in files], "private": False}
            return Answer(200, {}, json.dumps(info | {"tags": [], "downloads": 0, "likes": 0}).encode())
        file = self.folder / path.rsplit("/", 1)[-1]
        if self.cdn is not None and file.suffix == ".safetensors":
            return Answer(302, {"Location": self.cdn.url + path})
        return self._file(method, file, headers)

    def _file(self, method: str, file: Path, headers: dict[str, str]) -> Answer:
        time.sleep(self.pause_s)
        size = file.stat().st_size
        etag = f'"{self.entry(file)["oid"]}"'
        found = {"X-Repo-Commit": COMMIT, "ETag": etag, "Accept-Ranges": "bytes"}
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", headers.get("range", ""))
        if asked and headers.get("if-range", etag) == etag:
            start, last = int(asked[1]), int(asked[2])
            found["Content-Range"] = f"bytes {start}-{last}/{size}"
            answer = Answer(206, found, _part(file, start, min(last + 1, size)))
        else:
            start, answer = 0, Answer(200, found, _part(file, 0, size))
        with self._lock:
            fault = self.faults.pop(0) if self.faults else self.always
            if fault is not None:
                fault(file.name, answer)
            if method == "GET" and answer.status < 300:
                sent = len(answer.body) if answer.cut is None else answer.cut
                self.fetched.append(Fetched(file.name, start, sent))
        return answer


def _part(file: Path, start: int, stop: int) -> bytes:
    with file.open("rb") as opened:
        opened.seek(start)
        return opened.read(stop - start)


@contextmanager
def serving(folder: Path, cdn: Hub | None = None, pause_s: float = 0.0) -> Iterator[Hub]:
    """A running hub; `hub.url` is what HF_ENDPOINT has to be."""
    hub = Hub(folder, cdn, pause_s)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer("GET")

        def do_HEAD(self) -> None:
            self._answer("HEAD")

        def _answer(self, method: str) -> None:
            headers = {key.lower(): value for key, value in self.headers.items()}
            answer = hub.answer(method, unquote(self.path.split("?")[0]), headers)
            self.send_response(answer.status)
            for key, value in {**answer.headers, "Content-Length": str(len(answer.body))}.items():
                self.send_header(key, value)
            self.end_headers()
            if method == "GET":
                self.wfile.write(answer.body[: answer.cut])
            if answer.cut is not None:
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """A client that was killed is not news."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
