"""Requests to end a run, and critical sections that signals do not interrupt."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
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
def postponed() -> Iterator[None]:
    """Defer Python's SIGINT handler to the end of the block, whichever thread receives the signal.

    Blocking the signal is not enough in a program with several threads: another thread receives it, and the handler
    still runs in the main thread. Handlers never run in other threads.
    """
    former = signal.getsignal(signal.SIGINT)
    # None: it was not installed from Python, and cannot be put back.
    if former is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)
        if came and callable(former):
            former(*came[0])
        elif came:
            signal.raise_signal(signal.SIGINT)
