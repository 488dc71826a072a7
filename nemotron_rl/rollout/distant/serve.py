"""The rollout side: an engine that carries out what trainers on other ranks ask for, until the last of them leaves."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from typing import Any

from nemotron_rl.errors import NemotronRLError
from nemotron_rl.rollout.distant.bridge import Bridge, Channel
from nemotron_rl.rollout.distant.calls import Call, Compared, Failed, Generate, Leave, Locate, Receive, Score
from nemotron_rl.rollout.distant.holder import Holder, take_and_compare
from nemotron_rl.rollout.distant.stream import WeightStream, stream_buffers
from nemotron_rl.rollout.engine import Engine, Response


class Inbox:
    """Calls of several ranks in the order in which they come."""

    def __init__(self, bridge: Bridge, sources: Sequence[int]) -> None:
        self._bridge, self._staying = bridge, set(sources)
        self._calls: SimpleQueue[tuple[int, Call | RuntimeError]] = SimpleQueue()
        for source in sources:  # a thread each: one that waits for any rank would not notice the end of one
            threading.Thread(target=self._listen, args=(source,), name=f"calls-of-{source}", daemon=True).start()

    def __iter__(self) -> Iterator[tuple[int, Call]]:
        """(rank, call) until all ranks have left.

        Raises:
            RuntimeError: when a rank is gone that did not leave.
        """
        while self._staying:
            source, call = self._calls.get()
            if isinstance(call, RuntimeError):
                raise call
            if isinstance(call, Leave):
                self._staying.discard(source)
            else:
                yield source, call

    def _listen(self, source: int) -> None:
        call: Call | RuntimeError | None = None
        while not isinstance(call, Leave | RuntimeError):
            try:
                call = self._bridge.receive(source, Channel.CALLS)
            except RuntimeError as error:
                call = error
            self._calls.put((source, call))


class EngineServer:
    """One rank of an engine. The engine's first rank takes the calls, and passes them on to the others."""

    def __init__(self, engine: Engine, holder: Holder, bridge: Bridge, *, together: bool) -> None:
        """With `together` the requests of all replicas that share the engine make one batch."""
        self._engine, self._holder, self._bridge, self._together = engine, holder, bridge, together
        places = bridge.places
        leader, *self._followers = places.ranks_of(places.engine_of(bridge.rank))
        self._leads = bridge.rank == leader
        self._sources = range(places.trainers) if self._leads else [leader]
        self._waiting: list[tuple[int, Generate]] = []
        self._buffers = stream_buffers(bridge.device)

    def run(self) -> None:
        """Serve until the trainers have left.

        Raises:
            NemotronRLError: what the engine raised, once its caller knows.
            RuntimeError: when a trainer is gone that did not leave.
        """
        for source, call in Inbox(self._bridge, self._sources):
            self._pass_on(call)
            try:
                self._carry_out(source, call)
            except NemotronRLError as error:
                self._bridge.send(Failed(error), source if self._leads else 0, Channel.ANSWERS)
                raise
        self._pass_on(Leave())

    def _pass_on(self, call: Call) -> None:
        """Followers take part in all that the engine does, and get no requests: the leader gives it those."""
        match call:
            case Generate():
                call = Generate((), call.sampling, call.routes, call.callers)
            case Score():
                call = Score(())
            case _:
                pass
        for rank in self._followers:
            self._bridge.send(call, rank, Channel.CALLS)

    def _carry_out(self, source: int, call: Call) -> None:
        match call:
            case Generate():
                self._generate(source, call)
            case Score():
                self._answer(source, self._engine.score(call.sequences))
            case Receive():
                stream = WeightStream(self._bridge, self._buffers)
                compared: Compared = take_and_compare(self._holder, call, stream)
                self._bridge.send(compared, 0, Channel.ANSWERS)
            case Locate():
                where = self._holder.locate(call.name, call.tensor)
                if call.rank == self._bridge.rank:
                    self._bridge.send(where, 0, Channel.ANSWERS)
            case Leave():
                pass

    def _generate(self, source: int, call: Generate) -> None:
        self._waiting.append((source, call))
        if self._together and len(self._waiting) < call.callers:
            return
        calls, self._waiting = self._waiting, []
        requests = [request for _, one in calls for request in one.requests]
        responses = iter(self._engine.generate(requests, call.sampling, routes=call.routes))
        for caller, one in calls:
            answer: list[Response] = [next(responses) for _ in one.requests]
            self._answer(caller, answer)

    def _answer(self, source: int, answer: Any) -> None:
        if self._leads:
            self._bridge.send(answer, source, Channel.ANSWERS)
