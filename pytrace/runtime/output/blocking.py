"""Waiting for other processes in the middle of a run: a request to end the run ends the wait, too."""

from __future__ import annotations

import os
import select
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytrace.runtime.output.context import RunState

_LOOK_EVERY = 50
"""Milliseconds between two looks at whether the user has asked for the end."""


class BrokenOffError(Exception):
    """The user asked for the end of the run while something was waited for."""


class Wait:
    """One thing that is waited for; all requests to end the run that come after it was begun end it.

    Once the user has asked for the end, nothing is waited for, but for what end probes do. *prepare* is called before
    something is waited for.
    """

    def __init__(self, state: RunState, prepare: Callable[[], None] = lambda: None) -> None:
        self._state = state
        self._before = state.requests.count
        self._prepare = prepare

    def until_readable(self, descriptor: int) -> None:
        """Return when *descriptor* has something to read, or its end.

        Raises:
            BrokenOffError: the user asked for the end before.
        """
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if poll.poll(0):
            return
        self._prepare()
        while not (self._state.hurry or self._state.requests.count != self._before):
            if poll.poll(_LOOK_EVERY):
                return
        if not poll.poll(0):
            raise BrokenOffError


def read_file(path: bytes, most: int, wait: Wait) -> bytes:
    """The first *most* bytes of a file, which may be a FIFO or terminal that gives them when somebody writes.

    Raises:
        OSError: the file cannot be read.
        BrokenOffError: the user asked for the end before all was there.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            # One that nobody writes to yet would read as empty.
            wait.until_readable(descriptor)
        found = b""
        while len(found) < most:
            try:
                piece = os.read(descriptor, most - len(found))
            except BlockingIOError:
                wait.until_readable(descriptor)
                continue
            if not piece:
                break
            found += piece
        return found
    finally:
        os.close(descriptor)
