"""Writes that do not block: a pipe that is read slowly and a stopped terminal must not hold up the tracer.

Whether writes block is a property of the open file, which other processes share, so it is not changed.  A pipe or a
terminal is opened once more instead, for this process only (``/proc/self/fd``); where that is refused, and for sockets,
no more is written at once than there is room for.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import time

from pytrace.base import progress
from pytrace.core.diagnostics import TraceError

_AT_ONCE = 4096
"""Bytes that a pipe accepts without blocking when it polls as writable (``PIPE_BUF``)."""
_PAUSE = 0.01
"""Seconds until the next attempt where polling does not tell whether there is room."""


class Batch:
    """Parts that are being written together."""

    __slots__ = ("data", "done", "parts", "stop")

    def __init__(self, parts: list[bytes]) -> None:
        self.parts = parts
        self.data = memoryview(b"".join(parts))
        self.done: list[int] = []
        """Number of bytes that each call has written so far."""
        self.stop = 0
        """The end of the line after which messages are written; 0 when none wait."""

    @property
    def rest(self) -> memoryview:
        """The bytes to write next."""
        return self.data[self.written : self.stop or None]

    @property
    def ends_line(self) -> bool:
        """Whether the last byte ends a line."""
        return bytes(self.data[-1:]) == b"\n"

    def stop_at_line_end(self) -> None:
        """Stop at the end of the current line, for messages to be written there."""
        if not self.stop:
            written = self.written
            self.stop = bytes(self.data[written:]).find(b"\n") + 1
            if self.stop:
                self.stop += written

    @property
    def written(self) -> int:
        """Number of written bytes."""
        return sum(self.done)


class Channel:
    """Writes to a descriptor, which stays open after :meth:`close`."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._own = -1
        self._polls = False
        self._prepared = False
        self._terminal = False
        self.unsure = False
        """Whether it polls as writable although nothing could be written (a terminal does when little room is left)."""

    def fileno(self) -> int:
        """The descriptor that polls as writable when there is room."""
        return self.descriptor if self._own < 0 else self._own

    def prepare(self) -> None:
        """Open what writing needs; the first write does it otherwise."""
        if self._prepared:
            return
        self._prepared = True
        mode = os.fstat(self.descriptor).st_mode
        self._terminal = stat.S_ISCHR(mode) and os.isatty(self.descriptor)
        if not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode) and not self._terminal:
            return
        if not os.get_blocking(self.descriptor):
            return
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            self._own = os.open(f"/proc/self/fd/{self.descriptor}", flags)
        except OSError:
            self._polls = True

    def send(self, data: memoryview, done: list[int]) -> bool:
        """Write as much of *data* as there is room for, and append its length to *done*; False when nobody reads.

        Raises:
            TraceError: the device is full or failed.
        """
        try:
            self.prepare()
            if self._polls:
                if not self.wait(0):
                    return True
                data = data[:_AT_ONCE]
            if self._terminal:
                progress.make_room(bytes(data[-1:]))
            # Without a step of the interpreter in between: a signal's exception must not come before it is noted.
            done.extend(map(os.write, (self.fileno(),), (data,)))
            self.unsure = False
        except BlockingIOError:
            self.unsure = False
            self.unsure = self.wait(0)
            return True
        except OSError as error:
            if error.errno in (errno.EPIPE, errno.EIO):
                return False
            raise TraceError(f"cannot write output: {error.strerror}") from error
        return True

    def wait(self, seconds: float) -> bool:
        """Wait for room, at most *seconds*. Returns whether there is some."""
        if self.unsure:
            time.sleep(min(seconds, _PAUSE))
            return True
        poll = select.poll()
        poll.register(self.fileno(), select.POLLOUT)
        return bool(poll.poll(seconds * 1000))

    def close(self) -> None:
        """Close the own descriptor."""
        if self._own >= 0:
            os.close(self._own)
            self._own = -1
        self._prepared = False
