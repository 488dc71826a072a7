"""Writes a prepared checkpoint in a thread while training goes on. Copies first; writing never sees later weights.

A thread and not megatron's forked process: a fork of a process with gloo threads or a CUDA context is not safe to use,
and a thread ends with its process, so that a killed rank leaves no writer behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from megatron.core.dist_checkpointing.strategies.async_utils import AsyncRequest
from megatron.core.dist_checkpointing.strategies.filesystem_async import FileSystemWriterAsync

from nemotron_rl.store.manifest import FileEntry
from nemotron_rl.store.steps import file_entry


class BackgroundWrite:
    """This rank's part of one checkpoint on its way to the disk."""

    def __init__(self, request: AsyncRequest, folder: Path, others: Sequence[Path]) -> None:
        """Copies this rank's tensors and starts to write them.

        Args:
            request: What to write, from `state.prepare`.
            folder: The checkpoint's folder; hashed paths are relative to it.
            others: Files that this rank has written already.
        """
        self._request, self._folder, self._others = request, folder, list(others)
        self._error: Exception | None = None
        self._entries: list[FileEntry] = []
        write = _bound(request)
        self._thread = threading.Thread(target=self._run, args=(write,), name="checkpoint", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether the thread has ended, well or badly."""
        return not self._thread.is_alive()

    def wait(self) -> list[FileEntry]:
        """Wait for the thread; the files of this rank.

        Raises:
            OSError: or whatever else the writing met.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._entries

    def finalize(self) -> None:
        """Megatron's collective end of a save: the first rank writes the checkpoint's own metadata."""
        for function in self._request.finalize_fns:
            function()

    def _run(self, write: Callable[[], list[Path]]) -> None:
        try:
            files = [*self._others, *write()]
            self._entries = [file_entry(self._folder, path) for path in files]
        except Exception as error:  # handed to the training thread by `wait`
            self._error = error


def _bound(request: AsyncRequest) -> Callable[[], list[Path]]:
    """Copy the tensors now; the function that writes the copies and returns the files."""
    if request.async_fn is None:  # nothing to write on this rank
        return list
    _, live, queue = request.async_fn_args
    on_host = request.preload_fn()
    buckets = [
        (file, key, (data, _copies(tensors, sources)))
        for (file, key, (data, tensors)), (_, _, (_, sources)) in zip(on_host, live, strict=True)
    ]

    transforms = request.async_fn.args[0]

    def write() -> list[Path]:
        # What megatron's own function over all buckets does, except that it loses the reason of a failure.
        results = {}
        for number, bucket in enumerate(buckets):
            _, result = FileSystemWriterAsync.write_preloaded_data(
                transforms, number, bucket, None, None, use_fsync=True
            )
            if isinstance(result, Exception):
                raise result
            results[number] = result
        queue.put(results)
        return [Path(file) for file, _, _ in buckets]

    return write


def _copies(tensors: Sequence[tuple[Any, Any]], sources: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Tensors that share no memory with the live ones: what came from a GPU is a copy already."""
    return [
        (item, tensor.clone() if source.device.type == "cpu" else tensor)
        for (item, tensor), (_, source) in zip(tensors, sources, strict=True)
    ]
