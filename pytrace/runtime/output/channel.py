"""Writes that do not wait: a pipe that is read slowly and a terminal that was stopped must not hold up the tracer.

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

from pytrace.core.diagnostics import TraceError

_AT_ONCE = 4096
"""What a pipe that polls as writable takes without waiting (``PIPE_BUF``)."""
_PAUSE = 0.01
"""Seconds until the next try where polling does not tell whether there is room."""


class Channel:
    """A descriptor to write to. :meth:`close` closes what was opened here, not the descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._own = -1
        self._polls = False
        self._prepared = False
        self.unsure = False
        """Whether it polls as writable although nothing could be written (a terminal does when little room is left)."""

    def fileno(self) -> int:
        """The descriptor that polls as writable when there is room."""
        return self.descriptor if self._own < 0 else self._own

    def _prepare(self) -> None:
        self._prepared = True
        mode = os.fstat(self.descriptor).st_mode
        if not stat.S_ISFIFO(mode) and not stat.S_ISSOCK(mode) and not os.isatty(self.descriptor):
            return
        if not os.get_blocking(self.descriptor):
            return
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            self._own = os.open(f"/proc/self/fd/{self.descriptor}", flags)
        except OSError:
            self._polls = True

    def send(self, data: memoryview, done: list[int]) -> bool:
        """Write what there is room for of *data*, and put into *done* how many bytes that is; False when nobody reads.

        Raises:
            TraceError: the device is full or failed.
        """
        try:
            if not self._prepared:
                self._prepare()
            if self._polls:
                if not self.wait(0):
                    return True
                data = data[:_AT_ONCE]
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
        """Wait until there is room, at most so long; whether there is."""
        if self.unsure:
            time.sleep(min(seconds, _PAUSE))
            return True
        poll = select.poll()
        poll.register(self.fileno(), select.POLLOUT)
        return bool(poll.poll(seconds * 1000))

    def close(self) -> None:
        """Close what was opened here."""
        if self._own >= 0:
            os.close(self._own)
            self._own = -1
        self._prepared = False
