"""When the stacks in keys of maps were taken, as far as searches of the maps can tell.

A key that a search is the first to see was written after the search before began. Its value changed last before the
search that is the first to see that value. This tells apart functions that were compiled to the same place at different
times (:mod:`pytrace.runtime.symbols.compiled_code`), so it is noted for processes that compile code only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from pytrace.runtime.symbols.code_history import Period

SLACK = 1_000_000
"""Nanoseconds from the taking of a stack until it is in a map."""
Address = tuple[int, int]
"""A process and an address in it."""


class KeyPeriods:
    """Notes when rows of maps appeared and changed. *compiles* says of a process whether it compiles code."""

    def __init__(self, compiles: Callable[[int], bool]) -> None:
        self._compiles = compiles
        self._asked: dict[int, bool] = {}
        self._rows: dict[int, tuple[int, Period]] = {}
        """By digest of a key: the digest of its value, and its period."""
        self._fresh: dict[int, tuple[int, Period]] = {}
        self.addresses: dict[Address, Period] = {}
        """The periods of all keys that have an address, as one."""
        self.begun = self._before = time.monotonic_ns()
        """When the last search began, and the one before it."""

    def begin(self) -> None:
        """A search of all maps begins."""
        self._before, self.begun = self.begun, time.monotonic_ns()
        self._rows, self._fresh = self._fresh, {}
        self._asked, self.addresses = {}, {}

    def wanted(self, process: int) -> bool:
        """True if the rows of a process are to be noted."""
        known = self._asked.get(process)
        if known is None:
            known = self._asked[process] = self._compiles(process)
        return known

    def note(self, process: int, addresses: Iterable[int], key: bytes, value: bytes) -> None:
        """A row with addresses of a process; *key* is with what tells its map from others."""
        digest, content = hash(key), hash(value)
        known = self._rows.get(digest)
        now = time.monotonic_ns()
        if known is None:
            period = self._before - SLACK, now
        elif known[0] != content:
            period = known[1][0], now
        else:
            period = known[1]
        self._fresh[digest] = content, period
        for address in addresses:
            first, last = self.addresses.get((process, address), period)
            self.addresses[process, address] = min(first, period[0]), max(last, period[1])
