"""Messages on their way to a controller, which may read slowly or not at all: nothing here blocks."""

from __future__ import annotations

import time
from collections import deque

from pytrace.remote.messages import End, FromAgent, Snapshot, encode
from pytrace.runtime.output.streams import Channel

PAUSE = 0.05
"""Seconds of one wait for room."""


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
        """Queue a message. A snapshot replaces one that waits; warnings overtake it, and the end comes last."""
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
