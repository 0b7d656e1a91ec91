"""The consumer: events from the ring to the output, in turns of a few milliseconds.

Between two turns the session looks at signals, at ``exit()`` and at the traced process, whatever arrives and whether or
not the output is read.  After the user has asked for the end, waiting events are printed for :data:`ENDING` seconds,
or :data:`STUCK` where nobody reads them; the rest is dropped and counted.
"""

from __future__ import annotations

import select
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from pytrace.base.interruption import EndRequests
from pytrace.runtime.output.renderer import Renderer
from pytrace.runtime.output.ring import RingReader
from pytrace.runtime.output.streams import Output

if TYPE_CHECKING:
    from pytrace.runtime.session.probes import Probes
    from pytrace.runtime.stacks.lazy_symbols import LazySymbols

TURN = 0.005
"""Approximate duration of a turn in seconds, without its last slice of events."""
LOOK_EVERY = 0.01
"""Maximum seconds between two checks of signals while the output has no room."""
ENDING = 0.3
"""Seconds for which waiting events are printed after the user has asked for the end and all probes are detached."""
STUCK = 0.2
"""Seconds after which an output without room is not waited for any more then."""

UNPRINTED = ("unprinted", 0)


class EventLoop:
    """Waits for events, and for other descriptors, with as few wake-ups as the rate allows.

    At a low rate the ring wakes the reader at its first record. At a high one that would mean a wake-up (and an
    interrupt on the traced side) for every handful of records, so after a full drain the ring is left alone for
    :attr:`REST` seconds, and only the other descriptors are waited for.
    """

    REST = 0.002
    BUSY_COUNT = 64
    """A drain of at least this many events means that the rate is high."""

    def __init__(self, reader: RingReader, stack: ExitStack) -> None:
        self._reader = reader
        self._poll = stack.enter_context(select.epoll())
        self._poll.register(reader.fileno(), select.EPOLLIN)
        self._listening = True
        self._full: int | None = None

    def fileno(self) -> int:
        """Readable when a wait would return."""
        return self._poll.fileno()

    @property
    def listening(self) -> bool:
        """Whether a record in the ring ends a wait."""
        return self._listening

    def watch(self, descriptor: int) -> None:
        """Also wake up when *descriptor* can be read."""
        self._poll.register(descriptor, select.EPOLLIN)

    def unwatch(self, descriptor: int) -> None:
        """No longer wake up for *descriptor*."""
        self._poll.unregister(descriptor)

    def wait_for_room(self, descriptor: int | None) -> None:
        """Also wake up when *descriptor* can be written to (None: not any more)."""
        if descriptor != self._full:
            if self._full is not None:
                self._poll.unregister(self._full)
            if descriptor is not None:
                self._poll.register(descriptor, select.EPOLLOUT)
            self._full = descriptor

    def wait(self, timeout: float | None, drained: int = 0, *, events: bool = True) -> list[int]:
        """Wait for at most *timeout* seconds. Returns the ready descriptors among those of :meth:`watch`.

        *drained* is how many events the drain before gave; ``reader.pending`` tells afterwards whether to drain.
        Without *events* the ring is not waited for.
        """
        if events and drained >= self.BUSY_COUNT:
            self._listen(False)
            timeout = self.REST if timeout is None else min(timeout, self.REST)
        else:
            self._listen(events)
        others = (self._reader.fileno(), self._full)
        return [descriptor for descriptor, _ in self._poll.poll(timeout) if descriptor not in others]

    def _listen(self, wanted: bool) -> None:
        if wanted != self._listening:
            self._poll.modify(self._reader.fileno(), select.EPOLLIN if wanted else 0)
            self._listening = wanted


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
        probes: Probes,
        symbols: LazySymbols,
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
        output.end_batch()
        if not self._more:
            self._symbols.drained(started)
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
