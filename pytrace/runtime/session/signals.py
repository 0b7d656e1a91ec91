"""Signals of a session, as descriptors and flags: nothing is interrupted, the event loop looks."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from pytrace.base.interruption import EndRequests
from pytrace.core.diagnostics import Interrupted

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FORWARDED = (signal.SIGUSR1,)

TOGETHER = 0.1
"""Signals within so many seconds of the first are one request: ``timeout`` sends one to the process and one to its
group, a service manager SIGTERM and SIGHUP, a terminal that closes SIGHUP twice. Nobody types that fast."""


class SignalSource(Protocol):
    """Signals of a run, as its event loop sees them."""

    def begin(self) -> None:
        """From now on a signal ends the run in order: probes are detached, and output is printed."""

    def fileno(self) -> int:
        """A descriptor that becomes readable when a signal has come."""

    def take(self) -> list[int]:
        """Signals for ``self`` probes that came since the last call."""


class Signals:
    """While entered, SIGUSR1 is handed on; after :meth:`begin`, SIGINT, SIGTERM and SIGHUP ask for the end of the run.

    Before that they have the action that the process started with, which ends it. A second one, when some time has
    passed, breaks off whatever is going on (:class:`Interrupted`), unless *end_part* returns True: then it has ended
    something smaller than the whole run. What is open is closed all the same. SIGHUP stays ignored where it was
    (``nohup``).

    *requests* is where requests to end the run are counted.
    """

    def __init__(self, requests: EndRequests, end_part: Callable[[], bool] = bool) -> None:
        self._requests = requests
        self._end_part = end_part
        self._first = 0.0
        self._read = self._write = -1
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}
        self._wakeup = -1
        self._forwarded: list[int] = []
        self._unraisable = sys.unraisablehook

    def __enter__(self) -> Signals:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._take_over(_FORWARDED)
        return self

    def begin(self) -> None:
        """From now on there is something to end in order: probes and output."""
        self._unraisable = sys.unraisablehook
        sys.unraisablehook = self._unraised
        self._take_over(_ENDING)

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        sys.unraisablehook = self._unraisable
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._read)
        os.close(self._write)

    def fileno(self) -> int:
        """Readable when a signal has come."""
        return self._read

    def take(self) -> list[int]:
        """Signals to hand on that came since the last call."""
        try:
            os.read(self._read, 512)
        except BlockingIOError:
            pass
        taken, self._forwarded = self._forwarded, []
        return taken

    def _take_over(self, numbers: tuple[int, ...]) -> None:
        for number in numbers:
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue
            self._before[number] = signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if number in _FORWARDED:
            self._forwarded.append(number)
            return
        now = time.monotonic()
        requests = self._requests
        if not requests.ending:
            requests.ending, self._first = True, now
            requests.count = 1
        elif now - self._first >= TOGETHER and not self._end_part():
            requests.count += 1
            raise Interrupted(number)

    def _unraised(self, unraisable: UnraisableHookArgs, /) -> None:
        """A second signal that came within a callback of C code, which goes on: the next one breaks off."""
        if not isinstance(unraisable.exc_value, Interrupted):
            self._unraisable(unraisable)
