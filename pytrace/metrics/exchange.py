"""Snapshots for other threads: they request one, and the tracing thread takes it at its next step.

A session has no locks: maps are read by the thread that owns them. All requests that arrive before a snapshot is
complete share it, and the next one is taken only after tracing has run for :data:`SHARE` times as long as the last
snapshot took: however frequent the requests, most of the time is left for tracing.
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
"""Minimum time for tracing between two snapshots, as a multiple of the time that the last one took."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable the cyclic garbage collector in the block: repeated scans of 100,000 new objects take half of the time.

    Several threads may be in such blocks at once: the one that disabled the collector enables it again.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Exchange:
    """Connects threads that request snapshots (:meth:`ask`) with the one that takes them (:meth:`work`)."""

    def __init__(self, take: Callable[[], SnapshotData]) -> None:
        self._take = take
        self._lock = Lock()
        self._wanted: Future[SnapshotData] | None = None
        self._begun: Future[SnapshotData] | None = None
        """The snapshot that is being taken."""
        self._closed = False
        self._not_before = 0.0
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    # ---- any thread

    def ask(self, seconds: float) -> SnapshotData:
        """A snapshot that is being taken, or is taken after this call.

        Raises:
            TimeoutError: none was completed within *seconds*.
            TraceError: no snapshot can be taken; the message says why.
        """
        with self._lock:
            if self._closed:
                raise TraceError("the run is over")
            request = self._begun or self._wanted
            if request is None:
                request = self._wanted = Future()
                os.eventfd_write(self._event, 1)
        return request.result(seconds)

    # ---- the thread that traces

    def fileno(self) -> int:
        """A descriptor that is readable if a snapshot has been requested."""
        return self._event

    def pause(self, longest: float) -> float:
        """Seconds to wait for events before :meth:`work` is called, at most *longest*."""
        if self._wanted is None:
            return longest
        return max(0.0, min(longest, self._not_before - time.monotonic()))

    def work(self) -> None:
        """Take a snapshot if one has been requested and is due."""
        if self._wanted is None:
            return
        with suppress(BlockingIOError):
            os.eventfd_read(self._event)
        start = time.monotonic()
        if start < self._not_before:
            return
        with self._lock:
            request, self._wanted = self._wanted, None
            self._begun = request
        try:
            with uncollected():
                snapshot = self._take()
        except TraceError as error:
            request.set_exception(error)
        except BaseException:
            # Whatever interrupts the run: waiting threads must be released.
            request.set_exception(TraceError("the run was interrupted"))
            raise
        else:
            request.set_result(snapshot)
        finally:
            with self._lock:
                self._begun = None
        end = time.monotonic()
        self._not_before = end + SHARE * (end - start)

    def close(self) -> bool:
        """Take no more snapshots. Returns whether a request was waiting."""
        with self._lock:
            request, self._wanted = self._wanted, None
            was_open, self._closed = not self._closed, True
        if was_open:
            os.close(self._event)
        if request is None:
            return False
        with suppress(InvalidStateError):
            request.set_exception(TraceError("the run is over"))
        return True
