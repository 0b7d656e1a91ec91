"""The time zone of a test: output has local times."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pytrace.render import text


@contextmanager
def zone(name: str) -> Iterator[None]:
    """Within, local time is that of the zone *name* (as in ``TZ``, tzset(3))."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", name)
        time.tzset()
        text._calendar.cache_clear()
        yield
    time.tzset()
    text._calendar.cache_clear()
