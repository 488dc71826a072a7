"""Fetches a repository from the Hugging Face Hub, by its own client: cache, tokens and HF_ENDPOINT are the client's."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import httpx
from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import tqdm

from nemotron_rl.checkpoint.progress import Progress
from nemotron_rl.checkpoint.ranged.source import SourceUnavailable
from nemotron_rl.errors import CheckpointError

_OTHER_FORMATS = ["*.bin", "*.pt", "*.pth", "*.gguf", "*.h5", "*.msgpack", "*.onnx", "original/*"]


def fetch_hub(repo: str, revision: str, cache_dir: Path, progress: Progress | None) -> Path:
    """The snapshot folder of `repo` at `revision`; files already there are not fetched again.

    Raises:
        CheckpointError: No such repository or revision, no access, or the Hub cannot be reached.
    """
    with talking_to_hub(repo, revision):
        folder = snapshot_download(
            repo,
            revision=revision,
            cache_dir=cache_dir,
            ignore_patterns=_OTHER_FORMATS,
            tqdm_class=_bar_for(progress),
        )
    return Path(folder)


@contextmanager
def talking_to_hub(repo: str, revision: str, endpoint: str | None = None) -> Iterator[None]:
    """Errors of the client as a CheckpointError about this repository, asked for at `endpoint` or by default."""
    where = f"hf://{repo}@{revision}"
    try:
        yield
    except GatedRepoError as error:
        raise CheckpointError(f"{where} asks for access: accept its terms on the Hub and set HF_TOKEN") from error
    except RevisionNotFoundError as error:
        raise CheckpointError(f"{where}: the repository has no revision '{revision}'") from error
    except RepositoryNotFoundError as error:
        raise CheckpointError(f"{where}: there is no such repository, or HF_TOKEN may not read it") from error
    except (OSError, ValueError, httpx.HTTPError) as error:
        hub = endpoint or constants.ENDPOINT
        kind = SourceUnavailable if _may_pass(error) else CheckpointError
        raise kind(f"{where} could not be fetched from {hub}: {error!s:.300}") from error


def _may_pass(error: Exception) -> bool:
    """Whether the Hub is away or ill, and not the request wrong."""
    if isinstance(error, HfHubHTTPError):
        return int(error.response.status_code) >= 500
    return isinstance(error, (httpx.TransportError, LocalEntryNotFoundError))


def _bar_for(progress: Progress | None) -> type[Any]:
    """A bar that draws nothing and passes on the bytes written.

    The client makes one bar for bytes received, one for bytes written and one for files; only the last counts no bytes,
    and only the second is told about bytes that were already there, so that one is listened to.
    """

    class Bar(tqdm):  # type: ignore[misc]  # the client's types are not read
        _written: ClassVar[threading.Lock] = threading.Lock()

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._listens = str(kwargs.get("desc", "")).startswith("Reconstructing")
            self._bytes = 0
            super().__init__(*args, **{**kwargs, "disable": True})
            self.total = kwargs.get("total")

        def update(self, n: float | None = 1) -> bool | None:
            if self._listens and progress is not None:
                with self._written:
                    self._bytes += int(n or 0)
                    progress(self._bytes, max(int(self.total or 0), self._bytes))
            return None

    return Bar
