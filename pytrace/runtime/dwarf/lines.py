"""Line tables: source files of a unit, and which line each address belongs to. pyelftools reads their headers.

pyelftools makes several objects of each instruction of a line program, and a library has millions of them. Here
programs run in one loop over their bytes, and rows are columns of integers. A program is run in steps, so that whoever
waits for something else may look at it in between.

Source: the DWARF 5 standard, 6.2.5.
"""

from __future__ import annotations

import operator
from array import array
from bisect import bisect_left, bisect_right
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from elftools.common.exceptions import DWARFError

from pytrace.runtime.elf.leb128 import signed, unsigned

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

    from elftools.construct import Container as Header

    from pytrace.runtime.dwarf.units import Unit


class Row(NamedTuple):
    """Code from *address* on comes from a line; *line* 0 ends a run of code. *file* is a number in the file table."""

    address: int
    file: int
    line: int
    column: int
    statement: bool


_LINE = (1 << 32) - 1
"""The bits of a source in :class:`LineRows` that are the line."""


class LineTable:
    """The line table of one unit; an empty one for a unit without.

    Rows are read when they are first asked for, or by :meth:`reading`, and stored by column: as objects they would take
    ten times the memory.
    """

    def __init__(self, unit: Unit) -> None:
        self._program = unit.dwarfinfo.line_program(unit)
        self._section = unit.dwarfinfo.section("line")
        self._compiled_in = unit.top.text("DW_AT_comp_dir")
        self._folders: list[str] = []
        self.files = self._paths()
        self._rows = LineRows()
        self._steps = self._run()

    def _paths(self) -> list[str]:
        if self._program is None:
            return []
        header = self._program.header
        folders = [_text(name) for name in header["include_directory"] or ()]
        if header["version"] < 5:
            # Before DWARF 5 both tables count from 1, and folder 0 is that of the compilation.
            folders.insert(0, self._compiled_in)
        folders[1:] = [_joined(self._compiled_in, folder) for folder in folders[1:]]
        paths = [] if header["version"] >= 5 else [""]
        for entry in header["file_entry"] or ():
            number = entry.dir_index or 0
            paths.append(_joined(folders[number] if number < len(folders) else "", _text(entry.name)))
        self._folders = folders
        return paths

    def file(self, number: int) -> str:
        """Path of a file by the number that rows and call sites use; empty when there is none."""
        return self.files[number] if 0 <= number < len(self.files) else ""

    def _define(self, name: bytes, folder: int) -> None:
        """The program declares a further file."""
        self.files.append(_joined(self._folders[folder] if folder < len(self._folders) else "", _text(name)))

    def reading(self) -> Iterator[None]:
        """Read the rows in short steps, going on where a former reading stopped."""
        # Whoever stops must not close what the next one goes on with, as `yield from` would.
        for _ in self._steps:
            yield

    def _run(self) -> Iterator[None]:
        if self._program is None:
            return
        code = bytes(self._section.data[self._program.program_start_offset : self._program.program_end_offset])
        rows = LineRows()
        yield from LineMachine(self._program.header, code, rows, self._define).run()
        self._rows, self._program = rows, None

    def read(self) -> LineRows:
        """All rows."""
        for _ in self.reading():
            pass
        return self._rows

    def rows(self, line: int, files: Container[int]) -> Iterator[Row]:
        """The rows of a source line of some files, in order of address."""
        rows = self.read()
        for at in (at for at, source in enumerate(rows.sources) if source & _LINE == line):
            file = rows.sources[at] >> 32
            if file in files:
                yield Row(rows.addresses[at], file, line, rows.details[at] >> 1, bool(rows.details[at] & 1))

    def place(self, address: int) -> tuple[str, int]:
        """Source file and line of an address; empty and 0 when they are not known."""
        rows = self.read()
        at = bisect_right(rows.addresses, address) - 1
        line = rows.sources[at] & _LINE if at >= 0 else 0
        return (self.file(rows.sources[at] >> 32), line) if line else ("", 0)

    def between(self, low: int, high: int) -> Iterator[tuple[int, int, int]]:
        """Start, number of the file and line of the pieces of code from *low* to *high*; -1 and 0 without a line."""
        rows = self.read()
        first = max(0, bisect_right(rows.addresses, low) - 1)
        for at in range(first, bisect_left(rows.addresses, high, first)):
            line = rows.sources[at] & _LINE
            yield max(low, rows.addresses[at]), rows.sources[at] >> 32 if line else -1, line

    def __len__(self) -> int:
        return len(self._rows.addresses)


def _text(name: bytes | None) -> str:
    return (name or b"").decode(errors="replace")


def _joined(folder: str, name: str) -> str:
    return name if name.startswith("/") or not folder else f"{folder}/{name}"


# ---------------------------------------------------------------------------------------------- programs


STEP = 1 << 13
"""Bytes of a program that are run between two steps: some milliseconds."""

_EXTENDED, _COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE, _SET_COLUMN, _NEGATE, _CONST_ADD_PC, _FIXED_ADVANCE = (
    0, 1, 2, 3, 4, 5, 6, 8, 9,
)  # fmt: skip
"""``DW_LNS_*``; 0 begins an extended instruction."""
_END_SEQUENCE, _SET_ADDRESS, _DEFINE_FILE = 1, 2, 3
"""``DW_LNE_*``."""
_COLUMN = (1 << 31) - 1


class LineRows(msgspec.Struct):
    """Rows of a line table by column, in order of address once :meth:`LineMachine.run` is through.

    *sources* hold the file's number in the upper and the line in the lower 32 bits, and 0 at the end of a run of code.
    *details* are twice the column, and one more where a statement starts.
    """

    addresses: array[int] = msgspec.field(default_factory=lambda: array("Q"))
    sources: array[int] = msgspec.field(default_factory=lambda: array("Q"))
    details: array[int] = msgspec.field(default_factory=lambda: array("I"))


class LineMachine:
    """Runs one program, with pyelftools' *header* of it, and fills *rows*.

    *define_file* is called with the name and folder of files that the program itself declares.

    Raises:
        DWARFError: the program is for a machine whose instructions come in bundles, or its header is damaged.
    """

    def __init__(
        self, header: Header, code: bytes, rows: LineRows, define_file: Callable[[bytes, int], None]
    ) -> None:
        base, line_base, line_range = header["opcode_base"], header["line_base"], header["line_range"]
        unit = header["minimum_instruction_length"]
        if not line_range or header.get("maximum_operations_per_instruction", 1) > 1:
            raise DWARFError("its line programs are made for another kind of machine")
        self._base, self._unit = base, unit
        self._advances = [(number - base) // line_range * unit if number >= base else 0 for number in range(256)]
        self._moves = [line_base + (number - base) % line_range if number >= base else 0 for number in range(256)]
        self._operands = (0, *header["standard_opcode_lengths"])
        self._first = (0, 1, 1 << 32, 1 if header["default_is_stmt"] else 0)
        """Address, line, file (in the place that it has in sources) and detail at the start of a run of code."""
        self._code = code
        self._rows = rows
        self._define_file = define_file
        self._runs: list[tuple[int, int]] = []
        """First address and first row of each run of code."""
        self._addresses: list[int] = []
        self._sources: list[int] = []
        self._details: list[int] = []

    def run(self) -> Iterator[None]:
        """Run the program; each step of the iterator is a short one.

        Raises:
            IndexError, OverflowError: the program is damaged.
        """
        code, size, base, unit = self._code, len(self._code), self._base, self._unit
        advances, moves = self._advances, self._moves
        addresses, sources, details = self._addresses, self._sources, self._details
        address, line, file, detail = self._first
        at = 0
        while at < size:
            yield
            stop = min(at + STEP, size)
            while at < stop:
                number = code[at]
                at += 1
                if number >= base:
                    address += advances[number]
                    line += moves[number]
                elif number == _SET_COLUMN:
                    value, at = unsigned(code, at)
                    detail = detail & 1 | (value & _COLUMN) << 1
                    continue
                elif number == _NEGATE:
                    detail ^= 1
                    continue
                elif number == _ADVANCE_LINE:
                    value, at = signed(code, at)
                    line += value
                    continue
                elif number == _ADVANCE_PC:
                    value, at = unsigned(code, at)
                    address += value * unit
                    continue
                elif number != _COPY:
                    at, (address, line, file, detail) = self._rare(number, at, (address, line, file, detail))
                    continue
                addresses.append(address)
                sources.append(file + line)
                details.append(detail)
        self._end_run()
        _order(self._rows, self._runs)

    def _rare(
        self, number: int, at: int, state: tuple[int, int, int, int]
    ) -> tuple[int, tuple[int, int, int, int]]:
        """One of the other instructions: the place after it, and address, line, file and detail."""
        code, (address, line, file, detail) = self._code, state
        if number == _EXTENDED:
            return self._extended(at, state)
        if number == _FIXED_ADVANCE:
            address += code[at] | code[at + 1] << 8
            at += 2
        elif number == _CONST_ADD_PC:
            address += self._advances[255]
        elif number == _SET_FILE:
            value, at = unsigned(code, at)
            file = value << 32
        else:
            for _ in range(self._operands[number]):
                _, at = unsigned(code, at)
        return at, (address, line, file, detail)

    def _extended(self, at: int, state: tuple[int, int, int, int]) -> tuple[int, tuple[int, int, int, int]]:
        code = self._code
        length, at = unsigned(code, at)
        kind = code[at] if length else 0
        if kind == _END_SEQUENCE:
            self._addresses.append(state[0])
            self._sources.append(0)
            self._details.append(0)
            self._end_run()
            return at + length, self._first
        if kind == _SET_ADDRESS:
            return at + length, (int.from_bytes(code[at + 1 : at + length], "little"), *state[1:])
        if kind == _DEFINE_FILE:
            name, _, rest = code[at + 1 : at + length].partition(b"\0")
            self._define_file(name, unsigned(rest, 0)[0])
        return at + length, state

    def _end_run(self) -> None:
        """Append the rows of a run of code to the columns."""
        if self._addresses:
            self._runs.append((self._addresses[0], len(self._rows.addresses)))
        self._rows.addresses.extend(self._addresses)
        self._rows.sources.extend(self._sources)
        self._rows.details.extend(self._details)
        for column in (self._addresses, self._sources, self._details):
            column.clear()


def _order(rows: LineRows, runs: list[tuple[int, int]]) -> None:
    """Order rows by address; each of the *runs* of code is in order itself."""
    if any(map(operator.gt, runs, islice(runs, 1, None))):
        ends = dict(pairwise([*(row for _, row in runs), len(rows.addresses)]))
        _arrange(rows, [row for _, first in sorted(runs) for row in range(first, ends[first])])
    addresses = rows.addresses
    if any(map(operator.gt, addresses, islice(addresses, 1, None))):
        # Runs overlap: of code that the linker dropped, which starts at 0 everywhere, or they are damaged.
        _arrange(rows, sorted(range(len(addresses)), key=addresses.__getitem__))


def _arrange(rows: LineRows, order: list[int]) -> None:
    rows.addresses = array("Q", map(rows.addresses.__getitem__, order))
    rows.sources = array("Q", map(rows.sources.__getitem__, order))
    rows.details = array("I", map(rows.details.__getitem__, order))
