"""The functions of a unit and what was inlined in them, as far as stacks lead there."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

from pytrace.runtime.dwarf.entries import Entries, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytrace.runtime.dwarf.forms import Shape
    from pytrace.runtime.dwarf.lines import LineTable
    from pytrace.runtime.dwarf.units import Die, Unit

_SCOPES = frozenset((
    "DW_TAG_namespace", "DW_TAG_module", "DW_TAG_class_type", "DW_TAG_structure_type", "DW_TAG_union_type",
    "DW_TAG_enumeration_type",
))  # fmt: skip
"""Entries that functions with code may lie in; Rust has methods in enumerations."""
_STEP = 512
"""Entries that are looked at between two steps: some milliseconds."""


class Functions:
    """Start, end and entry of the functions with code in a unit, in order of address; *unit* None has none."""

    def __init__(self, unit: Unit | None) -> None:
        self._entries = Entries(unit) if unit is not None else None
        self._lows, self._highs, self._places = array("Q"), array("Q"), array("Q")
        self._steps = self._run()

    def reading(self) -> Iterator[None]:
        """Find the functions in short steps, going on where a former reading stopped."""
        # Whoever stops must not close what the next one goes on with, as `yield from` would.
        for _ in self._steps:
            yield

    def _run(self) -> Iterator[None]:
        entries = self._entries
        if entries is None:
            return
        rows: list[tuple[int, int, int]] = []
        waiting, seen = [entries.unit.top.offset], 0
        while waiting:
            for at, shape in _below(entries, waiting.pop()):
                seen += 1
                if not seen % _STEP:
                    yield
                if shape.tag in _SCOPES:
                    waiting.append(at)
                elif shape.tag == "DW_TAG_subprogram" and shape.code:
                    rows += [(low, high, at) for low, high in entries.code(at, entries.values(at))]
        rows.sort(key=lambda row: row[0])
        columns = [array("Q", column) for column in zip(*rows, strict=True)] or [array("Q")] * 3
        self._lows, self._highs, self._places = columns

    @property
    def known(self) -> int:
        """How many entries' ends are remembered."""
        return self._entries.extents.known if self._entries is not None else 0

    def _read(self) -> None:
        for _ in self.reading():
            pass

    def __len__(self) -> int:
        return len(self._lows)

    def __iter__(self) -> Iterator[Die]:
        """The functions' entries."""
        self._read()
        if self._entries is not None:
            yield from map(self._entries.unit.entry, self._places)

    def covering(self, address: int) -> Die | None:
        """The entry of the function with the code at an address."""
        self._read()
        at = bisect_right(self._lows, address) - 1
        if self._entries is None or at < 0 or address >= self._highs[at]:
            return None
        return self._entries.unit.entry(self._places[at])

    def around(self, address: int) -> tuple[int, int, Scope | None]:
        """The function with the code at an address and what was inlined there, and from where to where this is true.

        Where no function is, the piece between two of them.
        """
        self._read()
        at = bisect_right(self._lows, address) - 1
        after = self._lows[at + 1] if at + 1 < len(self._lows) else 1 << 64
        if at < 0:
            return 0, after, None
        low, high = self._lows[at], self._highs[at]
        if self._entries is None or address >= high:
            return high, after, None
        # Where functions overlap, the one that starts later counts.
        return low, min(high, after), Scope(self._entries, self._places[at])


class Scope:
    """A function, or an instance of one that was inlined into *parent*."""

    def __init__(
        self, entries: Entries, at: int, parent: Scope | None = None, values: dict[str, Value] | None = None
    ) -> None:
        self._entries = entries
        self._at = at
        self.parent = parent
        self._values = values or {}

    @property
    def function(self) -> str:
        """The linkage name where there is one, else the name."""
        return self._entries.function(self._at)

    @property
    def written(self) -> str:
        """The function's qualified name in DWARF, see :meth:`Entries.written`."""
        return self._entries.written(self._at)

    @property
    def call(self) -> tuple[int, int]:
        """File (its number in the line table) and line of the call that was replaced."""
        entries, at, values = self._entries, self._at, self._values
        return entries.number(at, values, "DW_AT_call_file", -1), entries.number(at, values, "DW_AT_call_line")

    def inside(self) -> Iterator[tuple[int, int, Scope]]:
        """Start, end and innermost function of pieces of code; of two that overlap, the later one counts."""
        entries = self._entries
        waiting: list[tuple[int, Scope, dict[str, Value] | None]] = [(self._at, self, None)]
        while waiting:
            at, scope, values = waiting.pop()
            if values is not None:
                for low, high in entries.code(at, values):
                    yield low, high, scope
            # What is pushed last comes first, so of siblings that overlap the first one counts.
            for below, shape in _below(entries, at):
                if not shape.code:
                    continue
                if shape.tag == "DW_TAG_inlined_subroutine":
                    attributes = entries.values(below)
                    waiting.append((below, Scope(entries, below, scope, attributes), attributes))
                elif shape.tag == "DW_TAG_lexical_block":
                    waiting.append((below, scope, entries.values(below)))


def _below(entries: Entries, at: int) -> Iterator[tuple[int, Shape]]:
    """The entries directly below one."""
    extents = entries.extents
    shape, body = extents.shape(at)
    if shape is None or not shape.children:
        return
    at = extents.past(shape, body)
    while True:
        shape, _ = extents.shape(at)
        if shape is None:
            return
        yield at, shape
        at = extents.behind(at)


class Segment(NamedTuple):
    """Code from *start* on lies in *scope* and comes from a line; *file* is a number in the line table."""

    start: int
    scope: Scope | None
    file: int
    line: int


def segments(low: int, high: int, function: Scope | None, table: LineTable) -> list[Segment]:
    """The code from *low* to *high* in pieces of one line in one function."""
    inside = list(function.inside()) if function is not None else []
    lines = list(table.between(low, high))
    edges = {low, *(start for start, _, _ in lines), *(edge for row in inside for edge in row[:2] if low < edge < high)}
    starts = sorted(edges)
    scopes: list[Scope | None] = [function] * len(starts)
    for first, end, inner in inside:
        one, other = bisect_left(starts, first), bisect_left(starts, end)
        scopes[one:other] = [inner] * (other - one)
    pieces: list[Segment] = []
    file, line, at = -1, 0, 0
    for start, scope in zip(starts, scopes, strict=True):
        while at < len(lines) and lines[at][0] <= start:
            _, file, line = lines[at]
            at += 1
        if not pieces or pieces[-1][1:] != (scope, file, line):
            pieces.append(Segment(start, scope, file, line))
    return pieces
