"""Which byte ranges to ask for, and where each of their bytes goes. Pure: reads and writes nothing.

Wanted parts that lie close together become one request; a request is at most some MB long, so that it can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import attrgetter

PIECE_BYTES = 8 << 20
LARGEST_WASTE = 0.02
"""Bytes fetched and thrown away, as a share of the bytes needed."""
LARGEST_GAP = 1 << 20
"""Bytes; a new request costs less than fetching more than this for nothing."""


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of a source file, and where they go."""

    file: str
    start: int
    """First byte in the source file."""
    size: int
    target: str
    """Name of the file that they are written to."""
    offset: int
    """First byte in the target."""

    @property
    def stop(self) -> int:
        """One past the last byte in the source file."""
        return self.start + self.size

    def cut(self, start: int, stop: int) -> Part:
        """What of it lies between two bytes of the source file."""
        return Part(self.file, start, stop - start, self.target, self.offset + start - self.start)


@dataclass(frozen=True, slots=True)
class Piece:
    """One request: from the first byte of its first part to the last byte of its last."""

    file: str
    parts: tuple[Part, ...]
    """In the order of their bytes, without overlap."""

    @property
    def start(self) -> int:
        """First byte to fetch."""
        return self.parts[0].start

    @property
    def stop(self) -> int:
        """One past the last byte to fetch."""
        return self.parts[-1].stop

    @property
    def fetched(self) -> int:
        """Bytes to fetch."""
        return self.stop - self.start

    @property
    def needed(self) -> int:
        """Bytes to keep."""
        return sum(part.size for part in self.parts)


@dataclass(frozen=True)
class FetchPlan:
    """All requests, in the order in which they are made."""

    pieces: tuple[Piece, ...]

    @property
    def needed(self) -> int:
        """Bytes to keep."""
        return sum(piece.needed for piece in self.pieces)

    @property
    def fetched(self) -> int:
        """Bytes to fetch."""
        return sum(piece.fetched for piece in self.pieces)

    @property
    def files(self) -> int:
        """Source files that are read."""
        return len({piece.file for piece in self.pieces})


def plan_fetch(
    parts: Iterable[Part],
    piece_bytes: int = PIECE_BYTES,
    largest_waste: float = LARGEST_WASTE,
    largest_gap: int = LARGEST_GAP,
) -> FetchPlan:
    """The requests for `parts`, by file and by place in it, whatever the order of `parts`.

    Args:
        parts: No two may have a byte of the source in common; empty ones are left out.
        piece_bytes: Longest request, at least 1.
        largest_waste: Most bytes fetched for nothing, as a share of the bytes of all parts.
        largest_gap: Most bytes between two parts of one request.
    """
    ordered = sorted((part for part in parts if part.size), key=attrgetter("file", "start"))
    bridged = _bridged_gaps(ordered, int(largest_waste * sum(part.size for part in ordered)), largest_gap)
    pieces: list[Piece] = []
    for file, run in groupby(ordered, key=attrgetter("file")):
        cutter = _Cutter(file, piece_bytes, bridged)
        for part in run:
            cutter.add(part)
        pieces += cutter.finish()
    return FetchPlan(tuple(pieces))


def _bridged_gaps(ordered: Sequence[Part], budget: int, largest_gap: int) -> frozenset[tuple[str, int]]:
    """The gaps, by file and first byte, to be fetched along: smallest first, as many as the budget allows."""
    gaps = sorted(
        (after.start - before.stop, before.file, before.stop)
        for before, after in pairwise(ordered)
        if before.file == after.file and before.stop < after.start
    )
    bridged = []
    for size, file, start in gaps:
        budget -= size
        if budget < 0 or size > largest_gap:
            break
        bridged.append((file, start))
    return frozenset(bridged)


class _Cutter:
    """Cuts the parts of one file, which come in order, into pieces."""

    def __init__(self, file: str, piece_bytes: int, bridged: frozenset[tuple[str, int]]) -> None:
        self._file, self._piece_bytes, self._bridged = file, piece_bytes, bridged
        self._pieces: list[Piece] = []
        self._open: list[Part] = []

    def add(self, part: Part) -> None:
        """Put a part into the open piece as far as it fits, and into new ones from there."""
        if self._open and part.start != self._open[-1].stop and (self._file, self._open[-1].stop) not in self._bridged:
            self._close()
        start = part.start
        while start < part.stop:
            limit = (self._open[0].start if self._open else start) + self._piece_bytes
            if start >= limit:
                self._close()
                continue
            stop = min(part.stop, limit)
            self._open.append(part.cut(start, stop))
            start = stop

    def finish(self) -> list[Piece]:
        """All pieces."""
        self._close()
        return self._pieces

    def _close(self) -> None:
        if self._open:
            self._pieces.append(Piece(self._file, tuple(self._open)))
            self._open = []
