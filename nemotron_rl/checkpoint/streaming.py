"""Many tensors of a checkpoint, one after the other, read ahead by several threads in pieces of bounded size.

Neighbours in a file share a request, so that a remote checkpoint of 50,000 tensors does not take 50,000 requests.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from nemotron_rl.checkpoint.ahead import run_ahead
from nemotron_rl.checkpoint.dtypes import itemsize
from nemotron_rl.checkpoint.layout import TensorEntry
from nemotron_rl.checkpoint.ranged.retry import read_bytes
from nemotron_rl.checkpoint.ranged.source import ByteSource

PIECE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Cut:
    """Some elements of a tensor, in a row."""

    entry: TensorEntry
    start: int
    """First byte in the file."""
    size: int
    """Bytes; whole elements."""


def stream_tensors(
    source: ByteSource, entries: Iterable[TensorEntry], piece_bytes: int = PIECE_BYTES
) -> Generator[tuple[TensorEntry, memoryview]]:
    """The bytes of `entries`, in this order: (tensor, its next bytes), always whole elements. Empty tensors come not.

    Memory: at most `source.workers` + 1 pieces.

    Raises:
        SourceUnavailable: The source kept failing.
        CheckpointError: The source is not what it was when it was opened.
    """
    planned = (partial(_read, source, piece) for piece in plan_pieces(entries, piece_bytes))
    with closing(run_ahead(planned, source.workers)) as pieces:
        for piece, data in pieces:
            for cut in piece:
                begin = cut.start - piece[0].start
                yield cut.entry, data[begin : begin + cut.size]


def _read(source: ByteSource, piece: list[Cut]) -> tuple[list[Cut], memoryview]:
    first, last = piece[0], piece[-1]
    return piece, memoryview(read_bytes(source, first.entry.file, first.start, last.start + last.size))


def plan_pieces(entries: Iterable[TensorEntry], piece_bytes: int) -> Iterator[list[Cut]]:
    """Cut and join `entries` into runs of neighbouring bytes of one file, of at most `piece_bytes` (or one element)."""
    piece: list[Cut] = []
    room = piece_bytes
    for entry in entries:
        width, start, stop = itemsize(entry.dtype), entry.offset, entry.offset + entry.nbytes
        while start < stop:
            joins = bool(piece) and piece[-1].entry.file == entry.file and piece[-1].start + piece[-1].size == start
            if piece and not (joins and room >= width):
                yield piece
                piece, room = [], piece_bytes
            size = min(stop - start, max(room - room % width, width))
            piece.append(Cut(entry, start, size))
            start, room = start + size, room - size
    if piece:
        yield piece
