"""Calls as rows of a snapshot, for the formats that show spans by thread."""

from __future__ import annotations

import os
import time
import uuid
from typing import BinaryIO

from pytrace.base import kernel_files
from pytrace.base.control_characters import printable_text
from pytrace.core.types import INT32, UINT64, Record, String
from pytrace.results.formats.format_row import WriteOptions
from pytrace.results.formats.table import named
from pytrace.results.snapshot import Portable, Run, SnapshotData, Table

MOST_SPANS = 250_000
"""Calls that are kept, the first ones: with what formats make of them they take some 500 MB."""

_TEXT = String(1024)
_LONGEST_NAME = 15
"""``TASK_COMM_LEN`` of include/linux/sched.h, without its end."""
_COLUMNS = {
    "start": UINT64, "took_ns": UINT64, "pid": INT32, "tid": INT32, "comm": String(16), "name": _TEXT,
    "arguments": _TEXT, "result": _TEXT, "depth": INT32,
}  # fmt: skip


class Spans:
    """The calls of a run. *target* says what was traced."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._rows: list[tuple[Portable, ...]] = []
        self._names: dict[int, str] = {}
        self._start = time.time_ns()
        self._start_monotonic = time.monotonic_ns()
        self.dropped = 0

    def add(
        self, start: int, duration: int, pid: int, tid: int, name: str, arguments: str, result: str, depth: int
    ) -> None:
        """Keep a call; *start* is wall time, all times are in nanoseconds."""
        if len(self._rows) >= MOST_SPANS:
            self.dropped += 1
            return
        self._rows.append((start, duration, pid, tid, self._name(tid), name, arguments, result, depth))

    def met(self, tid: int, parent: int = 0) -> None:
        """Remember a thread's name while it lives; one that has ended had that of its *parent*."""
        if not self._name(tid) and parent:
            self._names[tid] = self._name(parent)

    def executed(self, tid: int, program: str) -> None:
        """A thread executes the file *program*, and has its name from now on."""
        self._names[tid] = printable_text(program.rpartition("/")[2])[:_LONGEST_NAME]

    def _name(self, tid: int) -> str:
        known = self._names.get(tid)
        if known is None:
            known = printable_text(kernel_files.read_text(f"/proc/{tid}/comm").strip())
            if len(self._names) < MOST_SPANS:
                self._names[tid] = known
        return known

    def write(self, format_: str, file: BinaryIO, losses: dict[str, dict[str, int]]) -> None:
        """Write all in a format that shows rows."""
        host = os.uname()
        identity = str(uuid.uuid4())
        run = Run(
            identity, host.nodename, host.release, host.machine, "calls", "", (), self._start, time.time_ns(),
            self._start_monotonic, time.monotonic_ns(), target=self._target,
        )  # fmt: skip
        rows = sorted(self._rows, key=lambda item: item[0] if isinstance(item[0], int) else 0)
        table = Table(Record(tuple(_COLUMNS), tuple(_COLUMNS.values())), {identity: rows}, self.dropped)
        named(format_).writer()(SnapshotData((run,), tables=(table,), losses=losses), WriteOptions(), file)
