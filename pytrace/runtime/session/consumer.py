"""The consumer: events from the ring to the output, in turns of a few milliseconds.

Between two turns the session looks at signals, at ``exit()`` and at the traced process, whatever arrives and whether or
not the output is read.  After the user has asked for the end, waiting events are printed for :data:`ENDING` seconds,
or :data:`STUCK` where nobody reads them; the rest is dropped and counted.
"""

from __future__ import annotations

import time
from typing import Protocol

from pytrace.base.interruption import EndRequests
from pytrace.runtime.output.renderer import Renderer
from pytrace.runtime.output.streams import Output
from pytrace.runtime.ring.reader import EventLoop, RingReader

TURN = 0.005
"""Approximate duration of a turn in seconds, without its last slice of events."""
LOOK_EVERY = 0.01
"""Maximum seconds between two checks of signals while the output has no room."""
ENDING = 0.3
"""Seconds for which waiting events are printed after the user has asked for the end and all probes are detached."""
STUCK = 0.2
"""Seconds after which an output without room is not waited for any more then."""

UNPRINTED = ("unprinted", 0)


class AttachedProbes(Protocol):
    """Probes that events may detach (:class:`pytrace.runtime.session.probes.Probes`)."""

    def unwatch(self, addresses: list[int]) -> None:
        """Detach the watchpoints on *addresses*, and empty the list."""

    def detach(self) -> None:
        """Detach all probes."""


class FollowedSymbols(Protocol):
    """The symbolizer, which is told what it may take for over."""

    def drained(self, moment: int) -> None:
        """All events up to a moment were handled."""


class Consumer:
    """Hands events of *ring* to the handlers of *renderer*.

    *requests* says whether the user has asked for the end. *probes* are detached as soon as an ``exit()`` is seen,
    before the events that were sent earlier are handled, which may take long; not if one of these runs a command or
    reads a file, which may be traced, or look at what is attached (:meth:`finish_commands`).
    """

    def __init__(
        self,
        ring: RingReader,
        renderer: Renderer,
        output: Output,
        requests: EndRequests,
        probes: AttachedProbes,
        symbols: FollowedSymbols,
    ) -> None:
        self._ring = ring
        self._renderer = renderer
        self._output = output
        self._requests = requests
        self._probes = probes
        self._symbols = symbols
        self._deadline: float | None = None
        self._progress = (-1, -1)
        self._since = 0.0
        """The last progress of the output, and its time."""
        self._drained = 0
        self._more = False
        """Whether the last turn ended before everything was handled."""
        self._commands = renderer.kinds("system") | renderer.kinds("cat")
        ring.notice(renderer.kinds("exit"), self._exit_noticed)

    def _exit_noticed(self) -> None:
        if not self._ring.waiting(self._commands):
            self._probes.detach()

    def turn(self) -> int:
        """Handle waiting events for :data:`TURN` seconds, and write their output. Returns the number of events."""
        output = self._output
        output.advance()
        if output.congested:
            self._ring.collect()
            self._drained, self._more = 0, True
            return 0
        started = time.monotonic_ns()
        until = started / 1e9 + TURN
        self._more = False

        def enough() -> bool:
            self._more = time.monotonic() >= until or output.congested
            return self._more

        self._drained = self._ring.drain(self._renderer.handlers, None, lambda: output.accepted, enough)
        self._renderer.end_batch()
        if not self._more:
            self._symbols.drained(started)
        if unwatched := self._renderer.state.unwatched:
            self._probes.unwatch(unwatched)
        return self._drained

    def wait(self, loop: EventLoop, most: float) -> list[int]:
        """Wait for events or room in the output, at most *most* seconds. Returns the ready descriptors of *loop*."""
        output = self._output
        polls = output.waiting and not output.channel.unsure
        loop.wait_for_room(output.channel.fileno() if polls else None)
        if output.congested:
            return loop.wait(LOOK_EVERY, events=False)
        if output.waiting:
            most = min(most, LOOK_EVERY)
        return loop.wait(0 if self._more else most, self._drained)

    def drain(self) -> None:
        """Handle all events sent so far; after a request to end the run, as many as there is time for."""
        end = self._ring.produced
        while self._ring.handled < end and not self._late():
            if not self.turn() and not self._pause():
                break

    def finish_commands(self) -> None:
        """The run ends: handle the events sent so far as far as commands and files of scripts are among them.

        The probes are still attached then, as they were when the script asked for the command.
        """
        self._ring.collect()
        end = self._ring.produced
        while self._ring.waiting(self._commands) and self._ring.handled < end and not self._late():
            if not self.turn() and not self._pause():
                break

    def finish(self) -> None:
        """Handle all events that are left after detaching; drop and count those that there is no time for."""
        self._deadline = None
        while self._ring.pending or self._output.waiting:
            if self._late():
                self._ring.discard()
                self._output.drop(resume=True)
                break
            if not self.turn() and not self._pause():
                break

    def _pause(self) -> bool:
        """Wait for the reader of the output for a moment. Returns False when the output does not wait for it."""
        if not self._output.waiting:
            return False
        self._output.channel.wait(LOOK_EVERY)
        return True

    def _late(self) -> bool:
        if not self._requests.ending:
            return False
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + ENDING
        if (progress := self._output.progress) != self._progress:
            self._progress, self._since = progress, now
        return now > self._deadline or (self._output.waiting and now - self._since > STUCK)

    # ---- what was left

    def break_off(self) -> None:
        """Drop and count all waiting events, at whatever point a handler was interrupted."""
        # It may have printed some of its events before.
        rest = max(0, self._ring.handling - (self._output.accepted - self._ring.position))
        self._output.left += rest
        self._ring.discard()
        self._output.drop()

    def totals(self) -> dict[tuple[str, int], int]:
        """Number of unprinted events, if any."""
        left = self._output.left + self._ring.discarded
        return {UNPRINTED: left} if left else {}
