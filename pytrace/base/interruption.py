"""Requests to end a run, and critical sections that signals do not interrupt."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TypeAlias

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals by which users and systems end a process."""


Handler: TypeAlias = Callable[[int, FrameType | None], object]


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


def raised_in_import(error: RuntimeError) -> KeyboardInterrupt | None:
    """The interrupt that *error* came from: before Python 3.12 what ``__set_name__`` raises, as a class of a module is
    made, is the cause of a RuntimeError.
    """
    return error.__cause__ if isinstance(error.__cause__, KeyboardInterrupt) else None


@contextmanager
def interruptions(stop: Callable[[], object]) -> Iterator[None]:
    """Ctrl-C and SIGTERM call *stop* during the block, each time. It may raise KeyboardInterrupt, which leaves it."""

    def handle(_number: int, _frame: object) -> None:
        stop()

    former = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    except RuntimeError as error:
        if (interrupt := raised_in_import(error)) is None:
            raise
        raise interrupt from None
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


class _Postponement:
    """Handlers of signals that are postponed, and the signals that came."""

    def __init__(self, former: dict[int, Handler]) -> None:
        self._former = former
        self._came: dict[int, FrameType | None] = {}

    def note(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal later."""
        self._came.setdefault(number, frame)

    def deliver(self) -> None:
        """Let the former handlers handle what came, each once."""
        while self._came:
            number = next(iter(self._came))
            self._former[number](number, self._came.pop(number))


_postponements: list[_Postponement] = []
"""That of the main thread's block, if it is in one: a process has one handler of a signal."""


@contextmanager
def postponed() -> Iterator[None]:
    """Defer Python's handlers of signals that end the process to the end of the block or :func:`deliver`.

    For a step that must not be left half done, as the second Ctrl-C of a run raises wherever it is, and Python's own
    handler does with the first. Blocking the signals is not enough in a program with several threads: another thread
    receives it, and the handler still runs in the main thread. Handlers never run in other threads.
    """
    # None: it was not installed from Python, and cannot be put back.
    former: dict[int, Handler] = {
        number: handler for number in ENDING if callable(handler := signal.getsignal(number))
    }
    if not former or threading.current_thread() is not threading.main_thread() or _postponements:
        yield
        return
    postponement = _Postponement(former)
    # A former handler may raise as soon as one is put back: all are, then what came is handled.
    with ExitStack() as stack:
        stack.callback(postponement.deliver)
        stack.callback(_postponements.clear)
        _postponements.append(postponement)
        for number, handler in former.items():
            stack.callback(signal.signal, number, handler)
            signal.signal(number, postponement.note)
        yield


def deliver() -> None:
    """In a block of :func:`postponed`, where everything that is open has its owner: handle the signals that came.

    Raises:
        KeyboardInterrupt: there was one, and Python's own handler is installed.
    """
    if _postponements and threading.current_thread() is threading.main_thread():
        _postponements[0].deliver()
