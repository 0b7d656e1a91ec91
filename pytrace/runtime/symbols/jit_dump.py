"""``jit-PID.dump``: functions that just-in-time compilers note (Node ``--perf-prof``, .NET, Java's perf agent, Python
``-X perf_jit``).

The process maps a page of the file to execute, so that its path is among the mappings. Records have a type, a size and
a time, and are appended. Source: ``tools/perf/Documentation/jitdump-specification.txt`` of the kernel. Records of
source lines are left out: V8 and Java's agent do not agree on what their addresses count from.

The traced process writes it: a file is read if it belongs to the user of the process, to root or to this user, up to a
size; of each record only what is needed. Names stay in the file until they are needed.
"""

from __future__ import annotations

import os
import re
import struct
from bisect import bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from pytrace.runtime.abi import foreign_files

if TYPE_CHECKING:
    from collections.abc import Iterator
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
_LONGEST_NAME = 4096


class _Function(msgspec.Struct, frozen=True):
    """A function, and where its name is in the file."""

    start: int
    size: int
    name: int


class JitDump:
    """The functions of one file; it is read on when it has grown and a look-up failed."""

    def __init__(self, path: str, owners: set[int]) -> None:
        self._path = path
        self._owners = owners
        self._position, self._records = 0, 0
        self._order = "<"
        self._functions: list[_Function] = []
        """In order of address; of those that overlap the last one that was compiled is there."""
        self._starts: list[int] = []
        self.problem = ""
        """Why the file was not used, or not all of it."""

    def find(self, address: int) -> tuple[str, int] | None:
        """Name of the function that was the last one at an address, and how far into it the address is."""
        function = self._find(address)
        if function is None and self._read_on():
            function = self._find(address)
        if function is None:
            return None
        try:
            with self._open() as file:
                name = _read(file, _LONGEST_NAME, function.name).split(b"\0", 1)[0]
        except OSError:
            return None
        return name.decode(errors="surrogateescape"), address - function.start

    def _find(self, address: int) -> _Function | None:
        at = bisect_right(self._starts, address) - 1
        if at < 0 or address - self._starts[at] >= self._functions[at].size:
            return None
        return self._functions[at]

    def _open(self) -> BinaryIO:
        file = foreign_files.open_regular(self._path, os.O_NOFOLLOW)
        owner = os.fstat(file.fileno()).st_uid
        if owner not in self._owners:
            file.close()
            self.problem = f"{self._path} is not used: it belongs to user {owner}"
            raise PermissionError(self.problem)
        return file

    def _read_on(self) -> bool:
        """Read the records that are new; whether there are functions among them."""
        count = 0
        # A file that somebody truncates meanwhile has less than its size said.
        with suppress(OSError, struct.error), self._open() as file:
            for function in self._fresh(file):
                self._put(function)
                count += 1
        return count > 0

    def _fresh(self, file: BinaryIO) -> Iterator[_Function]:
        end = os.fstat(file.fileno()).st_size
        if not self._position and not self._begin(file):
            return
        head = struct.Struct(self._order + _HEAD)
        while self._position + head.size <= end:
            kind, size, _ = head.unpack(_read(file, head.size, self._position))
            if size < head.size or self._position + size > end:
                return  # being written, or damaged
            if self._records >= MOST_RECORDS or len(self._functions) >= MOST_FUNCTIONS:
                self.problem = f"{self._path} is too large: what is after its first {self._position} bytes is not used"
                return
            function = self._record(file, kind, self._position + head.size, size - head.size)
            self._records += 1
            self._position += size
            if function is not None:
                yield function

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
        return True

    def _record(self, file: BinaryIO, kind: int, position: int, size: int) -> _Function | None:
        """The function that a record is about."""
        if kind == _LOAD and size > 40:
            _, _, _, start, length, _ = struct.unpack(self._order + "IIQQQQ", _read(file, 40, position))
            return _Function(start, length, position + 40) if length else None
        if kind == _MOVE and size >= 48:
            _, _, _, old, new, length, _ = struct.unpack(self._order + "IIQQQQQ", _read(file, 48, position))
            moved = self._find(old)
            if moved is not None and moved.start == old and length:
                return _Function(new, length, moved.name)
        return None

    def _put(self, function: _Function) -> None:
        """Add a function in place of those whose code it overwrites."""
        end = function.start + function.size
        first = bisect_right(self._starts, function.start) - 1
        if first < 0 or self._starts[first] + self._functions[first].size <= function.start:
            first += 1
        last = first
        while last < len(self._starts) and self._starts[last] < end:
            last += 1
        self._functions[first:last] = [function]
        self._starts[first:last] = [function.start]


def _read(file: BinaryIO, size: int, position: int) -> bytes:
    return os.pread(file.fileno(), size, position)
