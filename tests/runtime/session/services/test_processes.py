"""What a run knows of processes, kept up to date."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, cast

from pytrace.runtime.session.services.processes import NothingUnwound, Processes

Change = tuple[str, int, int]


class Symbols:
    """The kernel's records: taken in by a poll, then handed out once."""

    descriptors = (4, 5)

    def __init__(self, *records: Change) -> None:
        self._records = list(records)
        self._polled: list[Change] = []

    def poll(self) -> None:
        self._polled, self._records = self._records, []

    def changes(self) -> list[Change]:
        changes, self._polled = self._polled, []
        return changes


class Unwinder:
    """The processes that are unwound."""

    def __init__(self) -> None:
        self.added: list[int] = []
        self.changes: list[Change] = []

    def add(self, pid: int) -> None:
        self.added.append(pid)

    def update(self, changes: list[Change]) -> None:
        self.changes += changes


def test_what_happened_to_processes_reaches_the_unwind_tables() -> None:
    unwinder = Unwinder()
    processes = Processes(cast(Any, Symbols(("map", 7, 0))), cast(Any, unwinder))
    assert processes.descriptors == (4, 5)
    processes.woken([])
    processes.woken([])
    assert unwinder.changes == [("map", 7, 0)]
    processes.add(8)
    assert unwinder.added == [8]


def test_a_script_that_unwinds_nothing() -> None:
    nothing = NothingUnwound()
    assert nothing.entries() == {}
    with ExitStack() as stack:
        processes = Processes(cast(Any, Symbols(("map", 7, 0))), nothing.start(cast(Any, None), stack, print))
    processes.add(8)
    processes.woken([])
