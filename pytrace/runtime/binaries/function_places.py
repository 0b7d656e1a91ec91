"""Functions and lines of code that were read from a file's DWARF for stacks.

Pieces of code (functions, mostly) are stored as columns of integers, whether they were read now or by a former run; the
DWARF itself is asked only about pieces that are not here. A cached file is named by a digest of its input; it has the
number of entries of each column, the columns, and the texts.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING

import msgspec

from pytrace.base import private_files
from pytrace.runtime.machine import fingerprints

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytrace.runtime.binaries.dwarf_lines import LineTable, Scope, Segment


_PREFIX = "lines-"
_MAGIC = b"pytrace lines 4 " + sys.byteorder.encode() + b"\n"
_MOST_SEGMENTS = 1 << 19
"""Entries that are remembered of one file: 10 MB. With more it begins again."""
_FILES = 64
"""Kept files; the ones that were written longest ago go."""


class Place(msgspec.Struct, frozen=True):
    """A function and the source line in it; *function* is the linkage name where there is one.

    *written* is the qualified name in DWARF, of functions of Rust if it tells bodies of async functions from closures.
    """

    function: str
    file: str
    line: int
    written: str = ""


class Places:
    """The pieces of code of one file that were asked for.

    *stamp* identifies the file and its build; without one nothing is cached.
    """

    def __init__(self, stamp: tuple[str, ...] | None) -> None:
        self._name = "" if stamp is None else f"{_PREFIX}{private_files.digest(repr(stamp).encode())}"
        self._fresh = False
        self._clear()
        data = fingerprints.read_kept(self._name) if self._name else None
        if data is not None:
            self._load(data)

    def _clear(self) -> None:
        # Of pieces, in order of address: start, end, place of the first segment, number of segments.
        self._lows, self._highs, self._firsts, self._counts = array("Q"), array("Q"), array("I"), array("I")
        # Of segments: start, number of the scope, number of the file's name, line.
        self._starts, self._scopes, self._files, self._lines = array("Q"), array("I"), array("I"), array("I")
        # Of scopes; number 0 is where no function is known. The parent, the function's name and (of Rust) its name in
        # DWARF, file and line of the call.
        self._parents, self._functions, self._written = array("I", [0]), array("I", [0]), array("I", [0])
        self._call_files, self._call_lines = array("I", [0]), array("I", [0])
        # Start, end and unit of code of units that `.debug_aranges` does not have, one after another.
        self._units, self._units_known = array("Q"), array("I", [0])
        self._texts: list[str] = [""]
        self._numbers: dict[str, int] = {}

    def _columns(self) -> tuple[array[int], ...]:
        return (
            self._lows, self._highs, self._firsts, self._counts, self._starts, self._scopes, self._files, self._lines,
            self._parents, self._functions, self._written, self._call_files, self._call_lines, self._units,
            self._units_known,
        )  # fmt: skip

    # ---- asking

    def knows(self, address: int) -> bool:
        """True if the piece of an address was read."""
        at = bisect_right(self._lows, address)
        return at > 0 and address < self._highs[at - 1]

    def find(self, address: int) -> list[Place] | None:
        """The functions of an address, inlined ones first; None when its piece was not read yet."""
        at = bisect_right(self._lows, address) - 1
        if at < 0 or address >= self._highs[at]:
            return None
        first = self._firsts[at]
        segment = bisect_right(self._starts, address, first, first + self._counts[at]) - 1
        if segment < first:
            return []
        scope, file, line = self._scopes[segment], self._texts[self._files[segment]], self._lines[segment]
        if not scope:
            return [Place("", file, line)] if line else []
        places = []
        while scope:
            function, written = self._texts[self._functions[scope]], self._texts[self._written[scope]]
            places.append(Place(function, file, line, written))
            file, line = self._texts[self._call_files[scope]], self._call_lines[scope]
            scope = self._parents[scope]
        return places

    # ---- adding

    def add(self, low: int, high: int, segments: Iterable[Segment], table: LineTable) -> None:
        """Add a piece of code, where none is yet."""
        self._fresh = True
        if len(self._starts) > _MOST_SEGMENTS:
            self._begin_again()
        try:
            self._add(low, high, segments, table)
        except BaseException:
            # Of damaged debug information, or interrupted: entries of the columns would not belong together.
            self._begin_again()
            raise

    def _add(self, low: int, high: int, segments: Iterable[Segment], table: LineTable) -> None:
        first = len(self._starts)
        known: dict[Scope, int] = {}
        for start, scope, file, line in segments:
            self._starts.append(start)
            self._scopes.append(self._scope(scope, table, known))
            self._files.append(self._text(table.file(file)))
            self._lines.append(line)
        at = bisect_right(self._lows, low)
        for column, value in zip(self._columns(), (low, high, first, len(self._starts) - first), strict=False):
            column.insert(at, value)

    def _begin_again(self) -> None:
        units, known = self._units, self._units_known
        self._clear()
        self._units, self._units_known = units, known

    def _scope(self, scope: Scope | None, table: LineTable, known: dict[Scope, int]) -> int:
        """The number of a scope; those that it lies in get theirs before it."""
        chain = []
        while scope is not None and scope not in known:
            chain.append(scope)
            scope = scope.parent
        number = known[scope] if scope is not None else 0
        for inner in reversed(chain):
            file, line = inner.call if inner.parent is not None else (-1, 0)
            self._parents.append(number)
            self._functions.append(self._text(inner.function))
            self._written.append(self._text(inner.written))
            self._call_files.append(self._text(table.file(file)))
            self._call_lines.append(line & 0xFFFFFFFF)
            number = known[inner] = len(self._parents) - 1
        return number

    def _text(self, text: str) -> int:
        if not self._numbers:
            self._numbers = {text: number for number, text in enumerate(self._texts)}
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self._texts)
            self._texts.append(text)
        return number

    def left_out(self) -> list[tuple[int, int, int]] | None:
        """Start, end and unit of code of units that ``.debug_aranges`` does not have; None when nobody looked."""
        if not self._units_known[0]:
            return None
        return list(zip(self._units[::3], self._units[1::3], self._units[2::3], strict=True))

    def set_left_out(self, rows: Iterable[tuple[int, int, int]]) -> None:
        """Set the rows that :meth:`left_out` returns."""
        self._units, self._units_known = array("Q", (number for row in rows for number in row)), array("I", [1])
        self._fresh = True

    # ---- keeping

    def keep(self) -> None:
        """Store the pieces for later runs, when there are new ones."""
        if not self._fresh or not self._name:
            return
        self._fresh = False
        columns = self._columns()
        texts = "\0".join(self._texts).encode(errors="surrogateescape")
        head = struct.pack(f"={len(columns)}Q", *map(len, columns))
        body = b"".join([head, *(column.tobytes() for column in columns), texts])
        fingerprints.keep(self._name, _MAGIC, body)
        private_files.trim(fingerprints.KEPT, _FILES, _PREFIX)

    def forget_kept(self) -> None:
        """Do not store anything: what was read depends on more files than the one of the stamp."""
        self._name = ""

    def _load(self, data: bytes) -> None:
        if not data.startswith(_MAGIC):
            return
        body = data[len(_MAGIC) :]
        columns = self._columns()
        for column in columns:
            del column[:]
        at = 8 * len(columns)
        for column, count in zip(columns, struct.unpack_from(f"={len(columns)}Q", body), strict=True):
            end = at + count * column.itemsize
            column.frombytes(body[at:end])
            at = end
        self._texts = body[at:].decode(errors="surrogateescape").split("\0")
