"""What passes between an agent and its controller, without blocking: lines read, messages written; and signals."""

from __future__ import annotations

import os
import select
import time
from collections import deque

from pytrace.remote import messages
from pytrace.remote.messages import Beat, Clock, End, FromAgent, Snapshot, encode
from pytrace.runtime.output.streams import Channel

# ---------------------------------------------------------------------------------------------- from the controller


class Signals:
    """Whether a signal has asked for the end."""

    arrived = False


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


# ---------------------------------------------------------------------------------------------- to the controller


PAUSE = 0.05
"""Seconds of one wait for room."""
MOST_WAITING = 1000
"""Messages that may wait when another answer about the clock is added, which is then not given."""


class Outbox:
    """A queue of messages; of snapshots only the newest waits, so that it stays small."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._queue: deque[bytes] = deque()
        self._snapshot = self._end = b""
        self._rest = memoryview(b"")
        """Of the message that is being written."""
        self.broken = False
        """Whether nobody reads any more."""
        self.sent = 0
        """Bytes of messages that were written, or are being written."""

    def put(self, message: FromAgent) -> None:
        """Queue a message. A snapshot replaces one that waits; warnings overtake it, and the end comes last.

        A controller that asks for the clock all the time and does not read gets no further answers.
        """
        if isinstance(message, Clock) and len(self._queue) >= MOST_WAITING:
            return
        line = encode(message)
        if isinstance(message, Snapshot):
            self._snapshot = line
        elif isinstance(message, End):
            self._end = line
        else:
            self._queue.append(line)

    @property
    def pending(self) -> bool:
        """Whether something waits to be written."""
        return not self.broken and bool(self._rest or self._queue or self._snapshot or self._end)

    def advance(self) -> int:
        """Write as much as there is room for. Returns the number of bytes.

        Raises:
            TraceError: the output cannot be written.
        """
        written = 0
        while self.pending:
            if not self._rest:
                self._begin()
            done: list[int] = []
            self.broken = not self._channel.send(self._rest, done)
            if not sum(done):
                break
            self._rest = self._rest[sum(done) :]
            written += sum(done)
        return written

    def _begin(self) -> None:
        """Take the next message."""
        if self._queue:
            line = self._queue.popleft()
        elif self._snapshot:
            line, self._snapshot = self._snapshot, b""
        else:
            line, self._end = self._end, b""
        self._rest = memoryview(line)
        self.sent += len(line)

    def flush(self, patience: float) -> bool:
        """Write all that waits, until nothing could be written for *patience* seconds. Returns whether all was."""
        last = time.monotonic()
        while self.pending and time.monotonic() - last < patience:
            if self.advance():
                last = time.monotonic()
            elif self.pending:
                self._channel.wait(PAUSE)
        return not (self.broken or self.pending)
