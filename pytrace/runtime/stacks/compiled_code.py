"""Functions that processes compile at run time: their names by address and by the time at which it was seen.

Names come from ``/tmp/perf-PID.map`` (Node, Java, Python's perf support: `PerfMap`) and from ``jit-PID.dump`` (Node
``--perf-prof``, .NET, Java's perf agent, Python ``-X perf_jit``: `JitDump`), which the traced process writes. A file is
read if it belongs to the user of the process, to root or to this user, up to a size and without its holes; names stay
in it, kept open, until they are needed.

Code is replaced by other code at the same place, so each name has a range of times (`CodeHistory`), in nanoseconds of
``CLOCK_MONOTONIC``. A record of a jitdump has its time. A line of a perf map has none: it was written between the
reading that found it and the one before. An event came after the ring buffer was last empty. Keys of maps have no
times: searches of the maps while the run goes on say when a key was there first and when its value changed last
(`KeyPeriods`). Where several functions were at an address in that time, each may have been the one.

Source: ``tools/perf/Documentation/jit-interface.txt`` and ``jitdump-specification.txt`` of the kernel. Later lines of a
perf map replace earlier ones for the same code. Records of source lines are left out: V8 and Java's agent do not agree
on what their addresses count from. Of jitdumps with times of the processor's counter the moments of reading count.
"""

from __future__ import annotations

import errno
import os
import re
import struct
import sys
import time
from array import array
from bisect import bisect_right
from contextlib import suppress
from heapq import heappop, heappush
from typing import TYPE_CHECKING
from weakref import WeakSet

import msgspec

from pytrace.base import kernel_files
from pytrace.core.types import JIT
from pytrace.runtime.machine import foreign_files
from pytrace.runtime.stacks.image_places import is_generated
from pytrace.runtime.stacks.images import SymbolFrame

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Mapping as Table
    from typing import BinaryIO

    from pytrace.runtime.machine.procfs import Mapping
    from pytrace.runtime.stacks.address_space import AddressSpace


LATEST = (1 << 63, 1 << 63)
"""The period of what is asked of the newest code."""

_MOST_REPLACED = 64
"""Functions that one replaces with their history; more have lines of damaged files only."""
_MOST_VERSIONS = 256
"""Functions one after another at an address that are remembered."""
MOST_FOUND = 64
"""Of those the number that one search returns, the newest: each may have a name of its own."""

Period = tuple[int, int]
"""First and last moment at which something may have happened."""


MOST_TOGETHER = 1 << 22
"""Functions of all files that are remembered, some 150 MB."""
_COUNT_EVERY = 0.1
"""Seconds, in which some ten thousand functions may be added."""
_BURST, _SHARE = 5.0, 0.1
"""Seconds of processor time in which files of one owner are read at once, and the share of the time for what they add:
each of many processes may have a file of some hundred thousand functions, all of them one file under many names.
"""


class Reading:
    """What all files with names of compiled code have taken."""

    def __init__(self) -> None:
        self.sources: WeakSet[PerfMap | JitDump] = WeakSet()
        """Files of which functions are remembered."""
        self._spent: dict[int, tuple[float, float]] = {}
        """By owner the seconds that are not paid for yet, and when that was so."""
        self._counted, self._together = 0.0, 0
        """When the functions of all files were counted, as there may be thousands of files; and how many there were."""

    def refusal(self, owner: int) -> str:
        """Why a file of an owner is not read (on) now; empty if it is."""
        if self._unpaid(owner) > _BURST:
            return f"files of user {owner} took too much time"
        if (now := time.monotonic()) - self._counted > _COUNT_EVERY:
            self._counted, self._together = now, sum(source.functions for source in self.sources)
        if self._together >= MOST_TOGETHER:
            return f"{MOST_TOGETHER} functions of such files are known already"
        return ""

    def charge(self, owner: int, seconds: float) -> None:
        """A file of an owner took processor time."""
        self._spent[owner] = self._unpaid(owner) + seconds, time.monotonic()

    def _unpaid(self, owner: int) -> float:
        spent, when = self._spent.get(owner, (0.0, 0.0))
        return max(0.0, spent - _SHARE * (time.monotonic() - when))


READING = Reading()


class Code(msgspec.Struct, frozen=True, gc=False):
    """A function, and where the text with its name is in the file: position and, if it is known, length."""

    start: int
    size: int
    text: int
    length: int = 0


class _Version(msgspec.Struct, frozen=True):
    """What is at a place (None: no function) since a moment in *since*, and what was there before."""

    code: Code | None
    since: Period
    before: _Version | None
    number: int = 0
    """Versions before it."""


class _Segment(msgspec.Struct, frozen=True):
    """Addresses with one history."""

    start: int
    end: int
    version: _Version


class CodeHistory:
    """The functions at each address since *begin*; of the time before, only what was there at *begin*.

    A function that other code overlaps is gone; with *keeps_heads* its part before that code stays.
    """

    def __init__(self, begin: int, *, keeps_heads: bool = False) -> None:
        self._begin = begin
        self._keeps_heads = keeps_heads
        self._segments: list[_Segment] = []
        self._starts: list[int] = []
        self.count = 0
        """How many functions were added."""

    def covers(self, address: int) -> bool:
        """True if code at an address was added."""
        return self._at(address) is not None

    def find(self, address: int, period: Period = LATEST) -> list[Code]:
        """The newest functions that may have been at an address at a moment of *period*, oldest first.

        Code that was added later only had not been noted by then: it is the first that was.
        """
        segment = self._at(address)
        if segment is None:
            return []
        first, last = period
        found: list[Code | None] = []
        version: _Version | None = segment.version
        oldest = None
        while version is not None and len(found) < MOST_FOUND:
            oldest = version.code
            if version.since[0] <= last:
                found.append(oldest)
            if version.since[1] <= first:
                break
            version = version.before
        return [code for code in reversed(found or [oldest]) if code is not None]

    def put(self, code: Code, since: Period) -> None:
        """Add a function that came after all that were added before, in place of those whose code it overwrites."""
        self._replace(code.start, code.start + code.size, code, since)
        self.count += 1

    def remove(self, start: int, end: int, since: Period) -> None:
        """The functions in an area are gone, as code was moved from there."""
        self._replace(start, end, None, since)

    def _replace(self, start: int, end: int, code: Code | None, since: Period) -> None:
        first, last = self._overlapped(start, end)
        old = self._segments[first:last]
        kept = since[1] > self._begin and len(old) <= _MOST_REPLACED
        pieces = self._heads(old, start, since if kept else None)
        at = start
        for segment in old if kept else ():
            left, right = max(segment.start, start), min(segment.end, end)
            if left >= right:
                continue
            if at < left:
                pieces += _part(at, left, code, since)
            pieces.append(_Segment(left, right, _after(segment.version, code, since)))
            at = right
        pieces += _part(at, end, code, since)
        if kept:
            pieces += [
                _Segment(max(segment.start, end), segment.end, _ended(segment.version, since))
                for segment in old if segment.end > end
            ]  # fmt: skip
        self._segments[first:last] = pieces
        self._starts[first:last] = [segment.start for segment in pieces]

    def _heads(self, old: list[_Segment], start: int, since: Period | None) -> list[_Segment]:
        """The parts of replaced functions before *start*, which end at *since*; None when that does not matter."""
        heads = []
        for segment in old:
            if segment.start < start and (self._keeps_heads or since is not None):
                version = segment.version
                if not self._keeps_heads and since is not None:
                    version = _ended(version, since)
                heads.append(_Segment(segment.start, min(segment.end, start), version))
        return heads

    def _overlapped(self, start: int, end: int) -> tuple[int, int]:
        """Segments that overlap an area, and the others of the functions that do."""
        segments = self._segments
        first = bisect_right(self._starts, start) - 1
        if first < 0 or segments[first].end <= start:
            first += 1
        last = first
        while last < len(segments) and segments[last].start < end:
            last += 1
        if first < last:
            while first > 0 and _same(segments[first - 1], segments[first]):
                first -= 1
            while last < len(segments) and _same(segments[last - 1], segments[last]):
                last += 1
        return first, last

    def _at(self, address: int) -> _Segment | None:
        at = bisect_right(self._starts, address) - 1
        return self._segments[at] if at >= 0 and address < self._segments[at].end else None


def _part(start: int, end: int, code: Code | None, since: Period) -> list[_Segment]:
    """The part of a function where nothing was before."""
    return [_Segment(start, end, _Version(code, since, None))] if start < end and code is not None else []


def _same(one: _Segment, two: _Segment) -> bool:
    """True if two segments are parts of one function."""
    return one.version.code is not None and one.version.code is two.version.code


def _ended(version: _Version, since: Period) -> _Version:
    """No function is at a place since a moment."""
    return version if version.code is None else _after(version, None, since)


def _after(before: _Version, code: Code | None, since: Period) -> _Version:
    """A function, or none, in place of another one; of too many the history begins anew."""
    kept = before if before.number < _MOST_VERSIONS else None
    return _Version(code, since, kept, before.number + 1 if kept is not None else 0)


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
_PIECE = 1 << 16
"""Bytes that are read between two looks at the limits."""
_NAMES_IN_MEMORY = 4096
"""Names that are kept in memory."""
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
            if len(self._names) >= _NAMES_IN_MEMORY:
                self._names.clear()
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
        for position, text in pieces:
            late: list[Code] = []
            for match in _LINE.finditer(text):
                start, size, line = int(match[1], 16), int(match[2], 16), position + match.start()
                length = min(len(match[0]), _LONGEST_LINE)
                if line < early:
                    fresh[start] = (size, line, length)
                elif size:
                    late.append(Code(start, size, line, length))
            if fresh and late:
                self._merge(fresh)
                fresh = {}
            # As the piece is charged for: it may be one of functions that all overlap.
            since = (before, time.monotonic_ns())
            for code in late:
                self._put(code, since)
            if len(self._starts) + len(fresh) >= MOST_FUNCTIONS or self._added.count >= MOST_ADDED:
                self._read = MOST_READ
        if fresh:
            begun = time.thread_time()
            self._merge(fresh)
            READING.charge(self._owner, time.thread_time() - begun)

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


MOST_DUMPED = 1 << 17
"""Functions of one file that are remembered."""
_MOST_RECORDS = 1 << 21
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
            if self._records >= _MOST_RECORDS or self._code.count >= MOST_DUMPED:
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


MOST_NAMES = 3
"""Functions that an address is shown as; where more were, it is shown as :data:`JIT`."""
_SLACK = 1_000_000
"""Nanoseconds from the taking of a stack until it is in the ring buffer or in a map."""


class CompiledCode:
    """Resolves addresses in code that is in no file. *unreadable* gets why names are missing, by what they are of."""

    def __init__(self, unreadable: dict[str, str]) -> None:
        self._unreadable = unreadable
        self._drained = time.monotonic_ns()
        self._searched: int | None = None
        self._over = False
        self._periods: Table[tuple[int, int], Period] = {}

    def drained(self, moment: int) -> None:
        """All events up to a moment were handled."""
        self._drained = moment

    def keyed(self, periods: Table[tuple[int, int], Period], searched: int, *, over: bool = False) -> None:
        """Addresses (process, address) in keys of maps, and when their stacks were taken; the maps were searched since
        the moment *searched*. *over*: there are no more events.
        """
        self._periods, self._searched, self._over = periods, searched, over

    def follow(self, space: AddressSpace) -> bool:
        """Read what a process has named since the last call, as that says when; True if it has named any code."""
        if not any(is_generated(row) for row in space.mappings):
            return False
        dump = space.jit_dump
        for names in (dump, space.perf_map):
            if names is not None:
                names.read_on()
        return any(names is not None and not names.empty for names in (space.perf_map, dump))

    def frame(self, process: int, space: AddressSpace, mapping: Mapping, address: int, caller: bool) -> SymbolFrame:
        """The function at an address: by jitdump, by perf map, else :data:`JIT`. *caller*: it is that of a call, one
        before the address in the stack. *process* is the number in the stack.
        """
        module = mapping.path or "[jit]"
        functions = self._functions(process, space, address, address + caller)
        if functions and len(functions) <= MOST_NAMES:
            return SymbolFrame(" or ".join(name for name, _ in functions), functions[-1][1] + caller, module)
        for names in (space.perf_map, space.jit_dump):
            if names is not None and names.problem:
                self._unreadable[f"names of functions that process {space.pid} compiled"] = names.problem
        if functions or is_generated(mapping):
            return SymbolFrame(JIT, address + caller - mapping.start, module)
        return SymbolFrame("", module=mapping.path)

    def _functions(self, process: int, space: AddressSpace, address: int, seen: int) -> list[tuple[str, int]]:
        """Names of the functions that an address, which is *seen* in stacks, may be of, oldest first, with offsets."""
        found: dict[str, int] = {}
        dump, names = space.jit_dump, space.perf_map
        for period in self._seen(process, seen):
            for source in (dump, names):
                functions = source.find(address, period) if source is not None else []
                if functions:
                    found.update(functions)
                    break
        return list(found.items())

    def _seen(self, process: int, address: int) -> list[Period]:
        """When stacks that have an address were taken."""
        known = self._periods.get((process, address))
        if known is not None and self._over:
            return [known]
        # Until the run is over it may also be that of an event, or of a key that has changed since the search.
        late = self._drained if self._searched is None else self._searched
        return [*([known] if known is not None else ()), (late - _SLACK, time.monotonic_ns())]


Address = tuple[int, int]
"""A process and an address in it."""
