"""Snapshots for other threads: they ask, and the thread that traces takes one at its next step.

Nothing of a session is locked: maps are read by the thread that they belong to. Everybody who asks before that thread
has the snapshot gets the same one, and it takes another only after it has traced for :data:`SHARE` times as long as the
last one took: however often somebody asks, tracing has most of the time.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from threading import Lock

from pytrace.core.diagnostics import TraceError
from pytrace.results.snapshot import SnapshotData

SHARE = 4
"""How much longer than for a snapshot there is for tracing before the next one."""


@contextmanager
def uncollected() -> Iterator[None]:
    """No search for cycles in the block: going through 100,000 new objects again and again takes half of the time.

    Several threads may be in such blocks at once: the one that came first begins collections again.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Exchange:
    """Between threads that want snapshots (:meth:`ask`) and the one that takes them (:meth:`work`)."""

    def __init__(self, take: Callable[[], SnapshotData]) -> None:
        self._take = take
        self._lock = Lock()
        self._wanted: Future[SnapshotData] | None = None
        self._begun: Future[SnapshotData] | None = None
        """The one that is being taken."""
        self._closed = False
        self._not_before = 0.0
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    # ---- any thread

    def ask(self, seconds: float) -> SnapshotData:
        """A snapshot that is being taken, or is taken after this call.

        Raises:
            TimeoutError: there was none within so many *seconds*.
            TraceError: there is none, the message says why.
        """
        with self._lock:
            if self._closed:
                raise TraceError("the run is over")
            wanted = self._begun or self._wanted
            if wanted is None:
                wanted = self._wanted = Future()
                os.eventfd_write(self._event, 1)
        return wanted.result(seconds)

    # ---- the thread that traces

    def fileno(self) -> int:
        """Readable when somebody has asked."""
        return self._event

    def pause(self, longest: float) -> float:
        """How long to wait for events before :meth:`work` is called, at most *longest* seconds."""
        if self._wanted is None:
            return longest
        return max(0.0, min(longest, self._not_before - time.monotonic()))

    def work(self) -> None:
        """Take a snapshot when one is wanted and it is time to."""
        if self._wanted is None:
            return
        with suppress(BlockingIOError):
            os.eventfd_read(self._event)
        start = time.monotonic()
        if start < self._not_before:
            return
        with self._lock:
            wanted, self._wanted = self._wanted, None
            self._begun = wanted
        try:
            with uncollected():
                snapshot = self._take()
        except TraceError as error:
            wanted.set_exception(error)
        except BaseException:
            # Whatever breaks the run off: nobody shall wait for it.
            wanted.set_exception(TraceError("the run was interrupted"))
            raise
        else:
            wanted.set_result(snapshot)
        finally:
            with self._lock:
                self._begun = None
        end = time.monotonic()
        self._not_before = end + SHARE * (end - start)

    def close(self) -> bool:
        """No snapshots any more; gives whether somebody was waiting for one."""
        with self._lock:
            wanted, self._wanted = self._wanted, None
            was_open, self._closed = not self._closed, True
        if was_open:
            os.close(self._event)
        if wanted is None:
            return False
        with suppress(InvalidStateError):
            wanted.set_exception(TraceError("the run is over"))
        return True
