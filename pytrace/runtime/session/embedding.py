"""A session inside another program: signals, output and process settings stay that program's."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import RLock

import msgspec

from pytrace.runtime.output.handlers import Make
from pytrace.runtime.output.streams import Output
from pytrace.runtime.session.signals import SignalSource
from pytrace.runtime.symbols.lazy import LazySymbols


class WakeUp:
    """Takes the place of signals: :meth:`wake` interrupts a wait from any thread."""

    def __init__(self) -> None:
        # Another thread must not write to a descriptor that is somebody else's by then; a handler of signals may call
        # while this thread holds the lock.
        self._lock = RLock()
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def begin(self) -> None:
        """Nothing is taken over."""

    def fileno(self) -> int:
        """Readable after :meth:`wake`."""
        return self._descriptor

    def take(self) -> list[int]:
        """No signal is handed on."""
        with suppress(BlockingIOError):
            os.eventfd_read(self._descriptor)
        return []

    def wake(self) -> None:
        """Have a wait that is going on, or the next one, return at once."""
        with self._lock:
            if self._descriptor >= 0:
                os.eventfd_write(self._descriptor, 1)

    def close(self) -> None:
        """Close the descriptor."""
        with self._lock:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)


class Embedding(msgspec.Struct, frozen=True):
    """Replacements of standard output, of printing and of signals."""

    output: Output
    handlers: Callable[[LazySymbols], Mapping[str, Make]]
    """Creates the handlers of each kind of event; the argument resolves addresses."""
    signals: SignalSource
    confined: bool = False
    """Whether the program gives up its privileges once everything is attached, as a run of the command does."""
