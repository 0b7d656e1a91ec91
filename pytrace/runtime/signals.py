"""Signals of a session, as descriptors and flags: nothing is interrupted, the event loop looks."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType, TracebackType

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_FORWARDED = (signal.SIGUSR1,)


class Signals:
    """While entered, SIGINT, SIGTERM and SIGHUP ask for the end of the run, and SIGUSR1 is handed on.

    A second one breaks off whatever is going on (``KeyboardInterrupt``); what is open is closed all the same. SIGHUP
    stays ignored where it was (``nohup``).
    """

    def __init__(self) -> None:
        self.ending = False
        """Whether somebody asked for the end."""
        self.instead: Callable[[], bool] = lambda: False
        """Asked at a second signal: whether it ended something smaller than the whole run."""
        self._read = self._write = -1
        self._before: dict[signal.Signals, object] = {}
        self._wakeup = -1
        self._forwarded: list[int] = []

    def __enter__(self) -> Signals:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (*_ENDING, *_FORWARDED):
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
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

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if number in _FORWARDED:
            self._forwarded.append(number)
            return
        if self.ending:
            if self.instead():
                return
            raise KeyboardInterrupt
        self.ending = True
