"""Critical sections that signals do not interrupt."""

from __future__ import annotations

# The built-in module: ``signal`` makes enumerations of all numbers first.
import _signal as signal  # type: ignore[import-not-found]
from collections.abc import Iterator
from contextlib import contextmanager

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals by which users and systems end a process."""


@contextmanager
def held() -> Iterator[None]:
    """Block signals that end the process until the end of the block, so that no partial file is left."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
