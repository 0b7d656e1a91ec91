"""The last part of an agent's run: the probes are detached, and the controller asks for functions of user stacks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

from pytrace.agent.inbox import Inbox, Signals
from pytrace.agent.outbox import Outbox
from pytrace.core.diagnostics import TraceError
from pytrace.remote import messages
from pytrace.remote.messages import Beat, Function, Limits, NamedPlace, NamedPlaces, NamePlaces, Place, Stop
from pytrace.runtime.symbols.images import Frame
from pytrace.runtime.symbols.met_binaries import MetBinaries

TURN, BUSY = 0.1, 0.005
"""Seconds of one wait for the controller, and of one while there is something to do."""
SLICE = 0.5
"""Seconds of naming for one message."""


class Naming:
    """Answers questions about places in binaries that were in stacks of the run, and in no others."""

    def __init__(
        self, met: MetBinaries, details: dict[str, int], inbox: Inbox, outbox: Outbox, signals: Signals
    ) -> None:
        self._met, self._details = met, details
        self._inbox, self._outbox, self._signals = inbox, outbox, signals

    def serve(self, limits: Limits) -> None:
        """Answer until the input ends, the controller is silent or does not read, or the time for it is over."""
        begun = heard = time.monotonic()
        asked: deque[Place] = deque()
        while (now := time.monotonic()) - begun < messages.NAMING and now - heard < limits.heartbeat:
            if self._over or self._outbox.sent > limits.bytes:
                return
            self._outbox.advance()
            if self._inbox.read(BUSY if asked or self._outbox.pending else TURN):
                heard = now
            for question in self._questions():
                asked += question.places
            if asked and not self._outbox.pending:
                self._outbox.put(NamedPlaces(tuple(self._some(asked))))

    def _some(self, asked: deque[Place]) -> Iterator[NamedPlace]:
        """Names of places for some time, after which the controller is to hear of this host."""
        end = time.monotonic() + SLICE
        for _ in range(min(len(asked), messages.MOST_PLACES)):
            yield self._named(asked.popleft())
            if time.monotonic() > end:
                return

    @property
    def _over(self) -> bool:
        return self._inbox.over or self._signals.arrived or self._outbox.broken

    def _questions(self) -> list[NamePlaces]:
        """The questions that have come; beats are answered.

        Raises:
            TraceError: something else has come.
        """
        questions = []
        lines, self._inbox.waiting = self._inbox.waiting, []
        for message in map(messages.to_agent, lines):
            if isinstance(message, NamePlaces):
                questions.append(message)
            elif not isinstance(message, (Beat, Stop)):
                raise TraceError("an agent runs one request, and another one came")
            elif (clock := self._inbox.clock(message)) is not None:
                self._outbox.put(clock)
        return questions

    def _named(self, place: Place) -> NamedPlace:
        frames = self._met.functions(place.build_id, place.address)
        functions = tuple(map(_function, frames[-messages.MOST_INLINED :]))
        return NamedPlace(place, self._details.get(place.build_id, 0), functions)


def _function(frame: Frame) -> Function:
    most = messages.LONGEST_NAME
    offset = min(frame.offset, messages.LARGEST_OFFSET)
    return Function(frame.name[:most], offset, frame.file[:most], frame.line, frame.inlined)
