"""A repository of the Hugging Face Hub as a source of byte ranges.

Its own client says what is there, with which token and at which endpoint; the bytes come over plain HTTP, because the
client can only fetch whole files.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import NoReturn

import httpx
from huggingface_hub import HfApi, hf_hub_url
from huggingface_hub.utils import build_hf_headers

from nemotron_rl.checkpoint.fetch_hub import talking_to_hub
from nemotron_rl.checkpoint.ranged.plan import PIECE_BYTES
from nemotron_rl.checkpoint.ranged.retry import seconds_asked_for
from nemotron_rl.checkpoint.ranged.source import SourceChanged, SourceFile, Transient, is_plain_name
from nemotron_rl.errors import CheckpointError

_TIMEOUT = httpx.Timeout(30.0, read=60.0)
_REDIRECTS = 5
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")
_PASSING = {408, 425, 429, 500, 502, 503, 504}


class HubSource:
    """The files of one commit. They cannot change under it: a branch that moves on is not followed."""

    workers = 8
    piece_bytes = PIECE_BYTES

    def __init__(self, repo: str, revision: str, *, endpoint: str | None = None, token: str | None = None) -> None:
        """Ask the Hub for the commit and the list of files.

        Args:
            repo: `org/name`.
            revision: Branch, tag or commit.
            endpoint: Address of the Hub; by default HF_ENDPOINT, as its client read it.
            token: Access token; by default the client's own.

        Raises:
            CheckpointError: No such repository or revision, no access, or the Hub cannot be reached.
        """
        self.where = f"hf://{repo}@{revision}"
        api = HfApi(endpoint=endpoint, token=token)
        with talking_to_hub(repo, revision, api.endpoint):
            info = api.model_info(repo, revision=revision, files_metadata=True)
        self.revision: str | None = str(info.sha)
        self.files: Mapping[str, SourceFile] = {
            item.rfilename: SourceFile(item.rfilename, item.size, item.lfs.sha256 if item.lfs else item.blob_id)
            for item in sorted(info.siblings or (), key=lambda item: str(item.rfilename))
            if is_plain_name(item.rfilename) and item.size is not None
        }
        self._urls = {name: hf_hub_url(repo, name, revision=info.sha, endpoint=api.endpoint) for name in self.files}
        self._hub = _origin(httpx.URL(api.endpoint))
        self._headers = {"Accept-Encoding": "identity"}
        self._credentials: dict[str, str] = build_hf_headers(token=token)
        limits = httpx.Limits(max_connections=self.workers, max_keepalive_connections=self.workers)
        self._client = httpx.Client(timeout=_TIMEOUT, limits=limits)
        self._lock = threading.Lock()
        self._ranges_work = False
        self._stored: dict[str, httpx.URL] = {}
        """Where the Hub sent us for a file. Such addresses expire."""
        self._stored_etags: dict[str, str] = {}
        """What the store behind the Hub calls the file's state, which need not be what the Hub calls it."""

    def read(self, file: str, start: int, stop: int) -> Iterator[bytes]:
        """See `ByteSource.read`."""
        whole = start == 0 and stop == self.files[file].size
        try:
            with closing(self._answer(file, start, stop, whole)) as response:
                self._check(response, file, start, stop, whole)
                yield from response.iter_raw()  # as it arrives, so that what came before a fault counts
        except httpx.TransportError as error:
            raise Transient(str(error) or type(error).__name__) from error

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _answer(self, file: str, start: int, stop: int, whole: bool) -> httpx.Response:
        """The answer of the place that has the bytes; the Hub's token is sent to the Hub only."""
        url = self._stored.get(file, httpx.URL(self._urls[file]))
        for _ in range(_REDIRECTS):
            headers = self._headers | ({} if whole else {"Range": f"bytes={start}-{stop - 1}"})
            at_hub = _origin(url) == self._hub
            headers |= self._credentials if at_hub else {}
            etag = self.files[file].etag if at_hub else self._stored_etags.get(file)
            if etag is not None and not whole:
                headers["If-Range"] = f'"{etag}"'
            response = self._client.send(self._client.build_request("GET", url, headers=headers), stream=True)
            if not response.has_redirect_location:
                if not at_hub:
                    self._stored[file] = url
                return response
            response.close()
            url = url.join(response.headers["Location"])
        raise CheckpointError(f"{self.where}/{file}: the Hub redirects in circles")

    def _check(self, response: httpx.Response, file: str, start: int, stop: int, whole: bool) -> None:
        """Whether the body is the bytes that were asked for, of the file that was planned with."""
        status, size = response.status_code, self.files[file].size
        if status not in (200, 206):
            self._refuse(response, file)
        self._check_etag(response, file)
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise CheckpointError(f"{self.where}/{file}: the server sent it compressed, which was not asked for")
        if status == 200 and not whole:
            self._refuse_whole(file)
        if status == 206:
            given = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if given is None or tuple(map(int, given.groups())) != (start, stop - 1, size):
                answer = response.headers.get("Content-Range")
                raise SourceChanged(self.where, file, f"asked for bytes {start}-{stop - 1}/{size}, got {answer!r:.80}")
            self._ranges_work = True

    def _refuse_whole(self, file: str) -> NoReturn:
        """A server that answered ranges before may do so again, such as one of several behind a name."""
        error = CheckpointError(
            f"{self.where}/{file}: the server answered a range with the whole file. Either the file changed, or "
            "the server or a proxy before it does not support ranges: then download the checkpoint whole"
        )
        if self._ranges_work:
            raise Transient("the whole file instead of a range", verdict=error)
        raise error

    def _check_etag(self, response: httpx.Response, file: str) -> None:
        etag = response.headers.get("ETag", "").removeprefix("W/").strip('"')
        if not etag:
            return
        if _origin(response.request.url) == self._hub:
            expected = self.files[file].etag
        else:
            with self._lock:
                expected = self._stored_etags.setdefault(file, etag)
        if etag != expected:
            raise SourceChanged(self.where, file, f"its ETag was {expected:.80} and is {etag:.80}")

    def _refuse(self, response: httpx.Response, file: str) -> None:
        status = response.status_code
        at_hub = _origin(response.request.url) == self._hub
        if not at_hub and self._stored.pop(file, None) is not None and status in (400, 401, 403, 404, 410):
            raise Transient(f"its address expired (HTTP {status})")  # the next try asks the Hub for a new one
        if status in _PASSING:
            raise Transient(f"HTTP {status}", seconds_asked_for(response.headers.get("Retry-After")))
        if status == 416:
            raise SourceChanged(self.where, file, "it became shorter")
        hint = ": accept the repository's terms on the Hub and set HF_TOKEN" if status in (401, 403) else ""
        raise CheckpointError(f"{self.where}/{file} could not be read: HTTP {status}{hint}")


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
