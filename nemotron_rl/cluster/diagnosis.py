"""What to show of a failed job's log: the traceback line that explains it, not torchrun's summary."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_RANK = re.compile(r"^\[rank(\d+)\]:\s?(.*)$")
_ROOT_CAUSE = re.compile(r"^\s*rank\s*:\s*(\d+) \(local_rank: \d+\)")
_RANK_OF_FAILURE = re.compile(r"^\s*rank\s*:\s*(\d+) ")
_SIGNAL = re.compile(r"^\s*traceback\s*:\s*Signal (\d+) \((\w+)\) received")
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?::\s|$)")
_START = "Traceback (most recent call last):"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
# What healthy ranks say when another one has died.
_VICTIM = re.compile(r"Connection (closed|reset) by peer|Broken pipe|remote process exited|recvValue failed")
_NOISE = re.compile(r"^(slurmstepd|srun): |^[EWI]\d{4} |^=+$|^-+$|ChildFailedError|^\s*$")
_TAIL = 5


@dataclass
class _Trace:
    """One traceback with its chain of causes; only the last of the chain is kept."""

    rank: int | None
    frames: list[str] = field(default_factory=list)
    message: list[str] = field(default_factory=list)
    """The exception's line and the indented lines that continue it."""
    closed: bool = False
    continues: bool = False
    """Whether the next traceback of this rank belongs to the same chain."""

    def restart(self) -> None:
        self.frames, self.message, self.closed, self.continues = [], [], False, False

    def add(self, text: str) -> None:
        """Take the line that follows, if it still belongs here."""
        if text.startswith(_CHAINED):
            self.continues = True
        elif self.closed or not text.strip():
            return
        elif text.startswith(" "):
            (self.message or self.frames).append(text)
        elif not self.message and _EXCEPTION.match(text):
            self.message.append(text)
        else:
            self.closed = bool(self.message)

    @property
    def is_torchrun(self) -> bool:
        return any("ChildFailedError" in line for line in self.message)

    @property
    def is_victim(self) -> bool:
        return any(_VICTIM.search(line) for line in self.message)


def explain(log: str) -> str:
    """The lines that say why a job failed: an exception and its last frame, a signal, or else the log's last lines."""
    lines = log.splitlines()
    traces = [trace for trace in _traces(lines) if trace.message and not trace.is_torchrun]
    signalled = _signalled(lines)
    if signalled and all(trace.is_victim for trace in traces):
        return signalled
    if not traces:
        return "\n".join([line for line in lines if not _NOISE.search(line)][-_TAIL:])
    root = next((int(found[1]) for line in lines if (found := _ROOT_CAUSE.match(line))), None)
    candidates = [trace for trace in traces if not trace.is_victim] or traces
    best = next((trace for trace in candidates if trace.rank is not None and trace.rank == root), candidates[0])
    where = [line for line in best.frames if line.startswith("  File ")][-1:]
    prefix = "" if best.rank is None else f"rank {best.rank}: "
    return "\n".join([prefix + best.message[0], *best.message[1:_TAIL], *where])


def _signalled(lines: list[str]) -> str:
    """The first rank that a signal ended which torchrun did not send to it; empty without one."""
    rank = ""
    for line in lines:
        if found := _RANK_OF_FAILURE.match(line):
            rank = found[1]
        elif (found := _SIGNAL.match(line)) and found[2] != "SIGTERM":
            return f"rank {rank} was ended by signal {found[1]} ({found[2]})"
    return ""


def _traces(lines: list[str]) -> list[_Trace]:
    """Tracebacks in the order of their first line. Ranks print into one file, so each rank's lines are kept apart."""
    found: list[_Trace] = []
    latest: dict[int | None, _Trace] = {}
    for line in lines:
        prefixed = _RANK.match(line)
        rank, text = (int(prefixed[1]), prefixed[2]) if prefixed else (None, line)
        trace = latest.get(rank)
        if text.startswith(_START):
            if trace is None or not trace.continues:
                trace = latest[rank] = _Trace(rank)
                found.append(trace)
            trace.restart()
        elif trace is not None:
            trace.add(text)
    return found
