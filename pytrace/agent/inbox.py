"""What tells an agent what to do: the lines of its controller, read without blocking, and signals."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from pytrace.remote import messages
from pytrace.remote.messages import Beat, Clock


class Signals:
    """Whether a signal has asked for the end."""

    arrived = False


@contextmanager
def end_requests() -> Iterator[Signals]:
    """Signals that end processes end the run in order, during the block."""
    signals = Signals()

    def handle(_number: int, _frame: FrameType | None) -> None:
        signals.arrived = True

    former = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield signals
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


class Inbox:
    """The controller's lines, read without blocking."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines = messages.Lines(messages.LONGEST_LINE)
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self.waiting: list[bytes] = []
        self.over = False
        self.heard = 0
        """When something was read last, by the wall clock."""

    def read(self, longest: float) -> bool:
        """Read what arrives within *longest* seconds to :attr:`waiting`. Returns whether anything did.

        Raises:
            TraceError: a line is too long.
        """
        if self.over or not self._poll.poll(longest * 1000):
            return False
        data = os.read(self._descriptor, 1 << 16)
        self.over, self.heard = not data, time.time_ns()
        self.waiting += self._lines.add(data)
        return bool(data)

    def clock(self, message: messages.ToAgent) -> Clock | None:
        """The answer to a beat that asks for the clock."""
        if isinstance(message, Beat) and message.sent:
            return Clock(message.sent, self.heard, time.time_ns())
        return None
