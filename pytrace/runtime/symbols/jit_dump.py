"""``jit-PID.dump``: functions that just-in-time compilers note (Node ``--perf-prof``, .NET, Java's perf agent, Python
``-X perf_jit``).

The process maps a page of the file to execute, so that its path is among the mappings. Records have a type, a size and
a time, and are appended. Source: ``tools/perf/Documentation/jitdump-specification.txt`` of the kernel. Records of
source lines are left out: V8 and Java's agent do not agree on what their addresses count from. Times are those of
``CLOCK_MONOTONIC``; of a file with times of the processor's counter the moments at which it was read count.

The traced process writes it: a file is read if it belongs to the user of the process, to root or to this user, up to a
size; of each record only what is needed. Names stay in the file until they are needed.
"""

from __future__ import annotations

import os
import re
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from pytrace.runtime.machine import foreign_files
from pytrace.runtime.symbols.code_history import LATEST, READING, Code, CodeHistory, Period

if TYPE_CHECKING:
    from typing import BinaryIO

NAME = re.compile(r"(?:^|/)jit-\d+\.dump$")
"""The name of the file in a process's mappings."""

MOST_FUNCTIONS = 1 << 17
"""Functions of one file that are remembered."""
MOST_RECORDS = 1 << 21
_MAGIC, _SWAPPED = 0x4A695444, 0x4454694A
_HEADER = "IIIIIIQQ"
_HEAD = "IIQ"
_LOAD, _MOVE = 0, 1
_PROCESSOR_TIMES = 1
"""``JITDUMP_FLAGS_ARCH_TIMESTAMP``."""
_LONGEST_NAME = 4096
_BETWEEN = 1 << 12
"""Records between two looks at whether reading takes too long."""


class JitDump:
    """The functions of one file, which is read on when it has grown; of code before *begin* the last ones only."""

    def __init__(self, path: str, owners: set[int], begin: int) -> None:
        self._path = path
        self._owners = owners
        self._position, self._records, self._seen = 0, 0, -1
        self._order, self._flags = "<", 0
        self._code = CodeHistory(begin)
        self._newest = self._checked = 0
        """Time of the last function, and of the last reading."""
        self.problem = ""
        """Why the file was not used, or not all of it."""

    def find(self, address: int, period: Period = LATEST) -> list[tuple[str, int]]:
        """Names of the functions that may have been at an address in *period*, and how far into each the address is.

        Names are distinct, and in the order in which the functions came.
        """
        self.read_on()
        functions = self._code.find(address, period)
        if not functions:
            return []
        try:
            with self._open() as file:
                names = [_read(file, _LONGEST_NAME, function.text).split(b"\0", 1)[0] for function in functions]
        except OSError:
            return []
        return list(
            {
                name.decode(errors="surrogateescape"): address - function.start
                for name, function in zip(names, functions, strict=True)
            }.items()
        )

    @property
    def functions(self) -> int:
        """Functions that are remembered."""
        return self._code.count

    @property
    def empty(self) -> bool:
        """True if the file has no functions, as far as it was read."""
        return not self._code.count

    def _open(self) -> BinaryIO:
        file = foreign_files.open_regular(self._path, os.O_NOFOLLOW)
        owner = foreign_files.status_of(file).st_uid
        if owner not in self._owners:
            file.close()
            self.problem = f"{self._path} is not used: it belongs to user {owner}"
            raise PermissionError(self.problem)
        return file

    def read_on(self) -> None:
        """Read the records that are new."""
        before, self._checked = self._checked, time.monotonic_ns()
        # A file that somebody truncates meanwhile has less than its size said.
        with suppress(OSError, struct.error):
            if foreign_files.look(self._path, os.O_NOFOLLOW).st_size == self._seen:
                return
            with self._open() as file:
                self._seen = foreign_files.status_of(file).st_size
                if self._position or self._begin(file):
                    self._read_records(file, before)

    def _read_records(self, file: BinaryIO, before: int) -> None:
        """Read the records that were not there at the time *before*."""
        head, owner = struct.Struct(self._order + _HEAD), foreign_files.status_of(file).st_uid
        begun = time.thread_time()
        while self._position + head.size <= self._seen:
            if not self._records % _BETWEEN:
                READING.charge(owner, time.thread_time() - begun)
                begun, refusal = time.thread_time(), READING.refusal(owner)
                if refusal:
                    self.problem = f"of {self._path} what is after {self._position} bytes is not used: {refusal}"
                    self._seen = -1  # it may be read on later
                    return
                READING.sources.add(self)
            kind, size, moment = head.unpack(_read(file, head.size, self._position))
            if size < head.size or self._position + size > self._seen:
                return  # being written, or damaged
            if self._records >= MOST_RECORDS or self._code.count >= MOST_FUNCTIONS:
                self.problem = f"{self._path} is too large: what is after its first {self._position} bytes is not used"
                return
            body, since = self._position + head.size, self._since(moment, before)
            self._records += 1
            self._position += size
            if kind == _LOAD and size > head.size + 40:
                self._load(file, body, since)
            elif kind == _MOVE and size >= head.size + 48:
                self._move(file, body, since)

    def _since(self, moment: int, before: int) -> Period:
        """When a function came, by the time in its record; *before* is the time of the reading before."""
        now = time.monotonic_ns()
        if self._flags & _PROCESSOR_TIMES:
            return before, now
        self._newest = max(self._newest, min(moment, now))
        return self._newest, self._newest

    def _begin(self, file: BinaryIO) -> bool:
        """Read the header; whether it is one."""
        data = _read(file, struct.calcsize("=" + _HEADER), 0)
        if len(data) < struct.calcsize("=" + _HEADER):
            return False
        (magic,) = struct.unpack_from("<I", data)
        if magic not in (_MAGIC, _SWAPPED):
            self.problem = f"{self._path} is not used: it is no jitdump file"
            return False
        self._order = "<" if magic == _MAGIC else ">"
        self._position = max(len(data), struct.unpack_from(self._order + "I", data, 8)[0])
        self._flags = struct.unpack_from(self._order + "Q", data, 32)[0]
        return True

    def _load(self, file: BinaryIO, position: int, since: Period) -> None:
        _, _, _, start, length, _ = struct.unpack(self._order + "IIQQQQ", _read(file, 40, position))
        if length:
            self._code.put(Code(start, length, position + 40), since)

    def _move(self, file: BinaryIO, position: int, since: Period) -> None:
        _, _, _, old, new, length, _ = struct.unpack(self._order + "IIQQQQQ", _read(file, 48, position))
        moved = self._code.find(old)
        if moved and moved[-1].start == old and length:
            self._code.remove(old, old + length, since)
            self._code.put(Code(new, length, moved[-1].text), since)


def _read(file: BinaryIO, size: int, position: int) -> bytes:
    return os.pread(file.fileno(), size, position)
