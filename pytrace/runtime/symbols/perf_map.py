"""``/tmp/perf-PID.map``: names that just-in-time compilers write for their code (Node, Java, Python's perf support).

Each line is the start and size of a function in hexadecimal, and its name. Later lines replace earlier ones for the
same code. Lines have no times: one came between the reading that found it and the reading before. Source:
``tools/perf/Documentation/jit-interface.txt`` of the kernel.

Anybody may put something under this name. A file is read if it belongs to the user of the process, to root or to this
user, up to a size and without its holes; names stay in the file, which is kept open, until they are needed.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import time
from array import array
from bisect import bisect_right
from heapq import heappop, heappush
from typing import TYPE_CHECKING
from weakref import WeakSet

from pytrace.base import kernel_files
from pytrace.runtime.machine import foreign_files
from pytrace.runtime.symbols.code_history import LATEST, READING, Code, CodeHistory, Period

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

_LINE = re.compile(rb"(?m)^(?:0x)?([0-9a-fA-F]{1,16}) +(?:0x)?([0-9a-fA-F]{1,16}) +(\S.*)$")

MOST_READ = 64 << 20
"""Bytes that are read of one file."""
MOST_FUNCTIONS = 1 << 19
"""Functions of one file that are remembered, 15 MB."""
MOST_LINES = 1 << 20
"""Lines that are looked at: a file may have ten million of a few bytes, all of one address."""
MOST_ADDED = 1 << 17
"""Functions that are remembered with their times: those that are added after the process became known."""
MOST_OPEN = 256
"""Files that are kept open; of others names are lost once the file is removed."""
_kept: WeakSet[foreign_files.ReadFile] = WeakSet()
_PIECE = 1 << 20
_LONGEST_LINE = 4096
"""Bytes of a line from which a name is read. Java's longest names have some hundred."""
_TAIL = 64
"""Bytes before the end of what was read that tell whether a file was written anew."""

_Row = tuple[int, int, int]
_State = tuple[int, int, int, int]


class PerfMap:
    """The map file of one process, read on when it has grown.

    Of the functions that it has already when this object is created the last one of each place counts; those that are
    added later have a time.
    """

    def __init__(self, pid: int) -> None:
        self._paths, self.owners = _candidates(pid)
        self._path = ""
        self._state: _State = (0, 0, 0, 0)
        """Device, inode, size and time of the last change of the file when it was read."""
        self._begin = self._checked = time.monotonic_ns()
        self._early = {path: state[2] for path in self._paths if (state := _state(path)) is not None}
        """Sizes of the files at the beginning."""
        self._owner = 0
        self._kept: foreign_files.ReadFile | None = None
        """The file, open: its program may remove it at its end, and a container that ends takes it along."""
        self.problem = ""
        """Why a file was not used, or not all of it."""
        self._clear()

    def _clear(self) -> None:
        self._position, self._read, self._count, self._tail = 0, 0, 0, b""
        # Of functions in order of address: start, size, position and length of the line in the file.
        self._starts, self._sizes = array("Q"), array("Q")
        self._lines, self._lengths = array("Q"), array("I")
        self._names: dict[int, str] = {}
        self._added = CodeHistory(self._begin, keeps_heads=True)

    def find(self, address: int, period: Period = LATEST) -> list[tuple[str, int]]:
        """Names of the functions that may have been at an address in *period*, and how far into each the address is.

        Names are distinct, and in the order in which the functions came.
        """
        self.read_on()
        found = {}
        for code in self._added.find(address, period) if self._added.covers(address) else self._first(address):
            name = self._name(code)
            if name is None:
                self._clear()  # it was written anew since then
                return []
            found[name] = address - code.start
        return list(found.items())

    def _first(self, address: int) -> list[Code]:
        """The function that was at an address at the beginning."""
        at = bisect_right(self._starts, address) - 1
        return [self._row(at)] if at >= 0 and address - self._starts[at] < self._sizes[at] else []

    def _row(self, at: int) -> Code:
        return Code(self._starts[at], self._sizes[at], self._lines[at], self._lengths[at])

    def _name(self, code: Code) -> str | None:
        """The name of a function; None when the file does not have it any more."""
        if code.text not in self._names:
            match = _LINE.match(self._text(code.text, code.length))
            if match is None or int(match[1], 16) != code.start:
                return None
            self._names[code.text] = match[3].strip().decode(errors="surrogateescape")
        return self._names[code.text]

    @property
    def empty(self) -> bool:
        """True if the file has no functions, as far as it was read."""
        return not (self._starts or self._added.count)

    def _text(self, position: int, length: int) -> bytes:
        if self._kept is not None:
            return bytes(self._kept[position : position + length])
        try:
            with self._open(self._path) as file:
                return os.pread(file.fileno(), length, position)
        except OSError:
            return b""

    def _open(self, path: str) -> BinaryIO:
        """The file at a path.

        Raises:
            OSError: there is none, or somebody else has put it there.
        """
        # Links are not followed, and nothing but regular files is opened.
        file = foreign_files.open_regular(path, os.O_NOFOLLOW)
        owner = foreign_files.status_of(file).st_uid
        if owner not in self.owners:
            file.close()
            self.problem = f"{path} is not used: it belongs to user {owner}"
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return file

    def read_on(self) -> None:
        """Read what the first file that can be read has new."""
        before, self._checked = self._checked, time.monotonic_ns()
        if self._path and _state(self._path) == self._state:
            return
        for path in self._paths:
            try:
                with self._open(path) as file:
                    self._continue(path, file)
                    self._keep(file.fileno())
                    self._owner = foreign_files.status_of(file).st_uid
                    self._add(self._pieces(path, file.fileno()), before)
                return
            except OSError:
                continue
        if self._kept is not None:
            # It was removed: what was written since the last reading is still there.
            self._add(self._pieces(self._path, self._kept.descriptor), before)

    def _continue(self, path: str, file: BinaryIO) -> None:
        """Begin again unless the file goes on where it ended when it was read."""
        status = foreign_files.status_of(file)
        state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        tail = os.pread(file.fileno(), len(self._tail), self._position - len(self._tail))
        if state[:2] != self._state[:2] or tail != self._tail:
            if self._path:
                self._early[path] = status.st_size
            self._clear()
            self._kept = None
        self._path, self._state = path, state

    def _keep(self, file: int) -> None:
        if self._kept is None and len(_kept) < MOST_OPEN:
            self._kept = foreign_files.ReadFile(file, 0, sys.maxsize)
            _kept.add(self._kept)

    @property
    def functions(self) -> int:
        """Functions that are remembered."""
        return len(self._starts) + self._added.count

    def _pieces(self, path: str, file: int) -> Iterator[tuple[int, bytes]]:
        """Whole lines that were not read yet, with their positions. Holes are left out."""
        end, owner = os.fstat(file).st_size, self._owner
        while self._position < end:
            refusal = READING.refusal(owner)
            if refusal:
                self.problem = f"of {path} what is after its first {self._position} bytes is not used: {refusal}"
                self._state = (*self._state[:2], -1, 0)  # it may be read on later
                return
            if self._read >= MOST_READ:
                self.problem = f"{path} is too large: what is after its first {self._position} bytes is not used"
                return
            try:
                position = os.lseek(file, self._position, os.SEEK_DATA)
            except OSError:  # ENXIO: the rest is a hole
                self._position, self._tail = end, b""
                return
            text = os.pread(file, _PIECE, position)
            # A line that is being written is read the next time, unless it fills a piece.
            self._count += text.count(b"\n")
            if self._count > MOST_LINES:
                self._read = MOST_READ
            whole = text.rfind(b"\n") + 1 or (len(text) if len(text) == _PIECE else 0)
            if not whole:
                return
            self._position, self._tail = position + whole, text[max(0, whole - _TAIL) : whole]
            self._read += whole
            begun = time.thread_time()
            yield position, text[:whole]
            READING.charge(owner, time.thread_time() - begun)
            READING.sources.add(self)

    def _add(self, pieces: Iterator[tuple[int, bytes]], before: int) -> None:
        """Add the functions of pieces of text at positions in the file, which it did not have at the time *before*."""
        early = self._early.get(self._path, 0)
        fresh: dict[int, _Row] = {}
        late: list[Code] = []
        for position, text in pieces:
            for match in _LINE.finditer(text):
                start, size, line = int(match[1], 16), int(match[2], 16), position + match.start()
                length = min(len(match[0]), _LONGEST_LINE)
                if line < early:
                    fresh[start] = (size, line, length)
                elif size:
                    late.append(Code(start, size, line, length))
            if len(self._starts) + len(fresh) >= MOST_FUNCTIONS or self._added.count + len(late) >= MOST_ADDED:
                self._read = MOST_READ
        if fresh:
            self._merge(fresh)
        since = (before, time.monotonic_ns())
        for code in late:
            self._put(code, since)

    def _put(self, code: Code, since: Period) -> None:
        """Add a function in place of those that were there at the beginning, or were added since."""
        at = max(bisect_right(self._starts, code.start) - 1, 0)
        while at < len(self._starts) and self._starts[at] < code.start + code.size:
            old = self._row(at)
            if old.start + old.size > code.start and not self._added.covers(old.start):
                self._added.put(old, (0, 0))
            at += 1
        self._added.put(code, since)

    def _merge(self, fresh: dict[int, _Row]) -> None:
        for start, *row in zip(self._starts, self._sizes, self._lines, self._lengths, strict=True):
            fresh.setdefault(start, (row[0], row[1], row[2]))
        last = _last_ones(fresh)
        self._starts = array("Q", last)
        rows = list(last.values())
        self._sizes, self._lines = array("Q", (row[0] for row in rows)), array("Q", (row[1] for row in rows))
        self._lengths = array("I", (row[2] for row in rows))


def _last_ones(functions: dict[int, _Row]) -> dict[int, _Row]:
    """Functions in order of address, without those whose code a later line replaced in part or in whole.

    Of a function that is replaced from its middle on the beginning stays.
    """
    last: dict[int, _Row] = {}
    newest: list[tuple[int, int]] = []  # a heap of what began so far: line, negative, and end
    before = 0
    for start in sorted(functions):
        size, line, length = functions[start]
        while newest and newest[0][1] <= start:
            heappop(newest)
        if not newest or -newest[0][0] < line:
            if before in last and before + last[before][0] > start:
                last[before] = (start - before, *last[before][1:])
            last[start] = (size, line, length)
            before = start
        heappush(newest, (-line, start + size))
    return last


def _state(path: str) -> _State | None:
    """Device, inode, size and time of the last change of a file; None when there is none."""
    try:
        status = foreign_files.look(path, os.O_NOFOLLOW)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _candidates(pid: int) -> tuple[list[str], set[int]]:
    """Where the file may be, and whose it may be.

    A process in a container writes it there, under the number that it has there.
    """
    inner, owners = _identity(kernel_files.read_text(f"/proc/{pid}/status"), pid)
    owners |= {0, os.geteuid()}
    paths = dict.fromkeys((f"/proc/{pid}/root/tmp/perf-{inner}.map", f"/tmp/perf-{pid}.map"))
    return list(paths), owners


def _identity(status: str, pid: int) -> tuple[int, set[int]]:
    """The number that a process has in its own namespace, and its users, by the text of ``/proc/PID/status``."""
    fields = dict(line.split(":", 1) for line in kernel_files.lines(status) if ":" in line)
    inner = fields.get("NSpid", "").split()
    return int(inner[-1]) if inner else pid, set(map(int, fields.get("Uid", "").split()))
