"""Requests to end a run, and critical sections that signals do not interrupt."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals by which users and systems end a process."""


class EndRequests:
    """Requests to end a run. Signal handlers count them; long operations poll them."""

    def __init__(self) -> None:
        self.ending = False
        """Whether a user has requested the end of the run, and waits for it."""
        self.count = 0
        """Number of requests."""


@contextmanager
def held() -> Iterator[None]:
    """Defer signals that end the process until the end of the block, so that no partial file is left."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def interruptions(stop: Callable[[], object]) -> Iterator[None]:
    """Ctrl-C and SIGTERM call *stop* during the block, each time."""

    def handle(_number: int, _frame: object) -> None:
        stop()

    former = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


class _Postponement:
    """The handler of SIGINT while it is postponed, and the signals that came."""

    def __init__(self, former: Callable[[int, FrameType | None], object] | int) -> None:
        self.former = former
        self.came: list[tuple[int, FrameType | None]] = []

    def deliver(self) -> None:
        """Let the former handler handle what came."""
        if not self.came:
            return
        first = self.came[0]
        self.came.clear()
        if callable(self.former):
            self.former(*first)
        else:
            signal.raise_signal(signal.SIGINT)


_postponements: list[_Postponement] = []
"""That of the main thread's block, if it is in one: a process has one handler of SIGINT."""


@contextmanager
def postponed() -> Iterator[None]:
    """Defer Python's SIGINT handler to the end of the block or :func:`deliver`, whichever thread receives the signal.

    Blocking the signal is not enough in a program with several threads: another thread receives it, and the handler
    still runs in the main thread. Handlers never run in other threads.
    """
    former = signal.getsignal(signal.SIGINT)
    # None: it was not installed from Python, and cannot be put back.
    if former is None or threading.current_thread() is not threading.main_thread() or _postponements:
        yield
        return
    postponement = _Postponement(former)
    _postponements.append(postponement)
    signal.signal(signal.SIGINT, lambda number, frame: postponement.came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
        _postponements.clear()
        postponement.deliver()


def deliver() -> None:
    """In a block of :func:`postponed`, where everything that is open has its owner: handle the signal that came.

    Raises:
        KeyboardInterrupt: there was one, and Python's own handler is installed.
    """
    if _postponements and threading.current_thread() is threading.main_thread():
        _postponements[0].deliver()
