"""Line tables, made by pyelftools' line programs: source files of a unit, and which line each address belongs to."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Container, Iterator
from functools import cached_property
from typing import NamedTuple

from pytrace.runtime.dwarf_units import Unit


class Row(NamedTuple):
    """Code from *address* on comes from a line; *line* 0 ends a run of code. *file* is a number in the file table."""

    address: int
    file: int
    line: int
    column: int
    statement: bool


class LineTable:
    """The line table of one unit; an empty one for a unit without.

    Rows are kept by column, since a run of days keeps many tables: as objects they would take ten times the memory.
    """

    def __init__(self, unit: Unit) -> None:
        self._program = unit.dwarfinfo.line_program(unit)
        self._compiled_in = unit.top.text("DW_AT_comp_dir")
        self.files = self._paths()

    def _paths(self) -> list[str]:
        if self._program is None:
            return []
        header = self._program.header
        folders = [_text(name) for name in header["include_directory"] or ()]
        if header["version"] < 5:
            # Before DWARF 5 both tables count from 1, and folder 0 is that of the compilation.
            folders.insert(0, self._compiled_in)
        folders[1:] = [_joined(self._compiled_in, folder) for folder in folders[1:]]
        found = [] if header["version"] >= 5 else [""]
        for entry in header["file_entry"] or ():
            number = entry.dir_index or 0
            found.append(_joined(folders[number] if number < len(folders) else "", _text(entry.name)))
        return found

    def file(self, number: int) -> str:
        """Path of a file by the number that rows and call sites use; empty when there is none."""
        return self.files[number] if 0 <= number < len(self.files) else ""

    @cached_property
    def _columns(self) -> tuple[array[int], ...]:
        """All rows in order of address; a row that ends a run comes before one that begins another there."""
        found = []
        for entry in self._program.get_entries() if self._program is not None else ():
            state = entry.state
            if state is not None:
                line = 0 if state.end_sequence else state.line
                found.append(Row(state.address, state.file, line, state.column, bool(state.is_stmt)))
        found.sort(key=lambda row: (row.address, row.line != 0))
        # Programs may define further files.
        self.files = self._paths()
        self._program = None
        return tuple(array("Q", column) for column in zip(*found, strict=True)) or (array("Q"),) * len(Row._fields)

    def rows(self, line: int, files: Container[int]) -> Iterator[Row]:
        """The rows of a source line of some files, in order of address."""
        columns = self._columns
        for at in (at for at, found in enumerate(columns[2]) if found == line):
            address, file, _, column, statement = (values[at] for values in columns)
            if file in files:
                yield Row(address, file, line, column, bool(statement))

    def place(self, address: int) -> tuple[str, int]:
        """Source file and line of an address; empty and 0 when they are not known."""
        addresses, files, lines, *_ = self._columns
        at = bisect_right(addresses, address) - 1
        if at < 0 or not lines[at]:
            return "", 0
        return self.file(files[at]), lines[at]


def _text(name: bytes | None) -> str:
    return (name or b"").decode(errors="replace")


def _joined(folder: str, name: str) -> str:
    return name if name.startswith("/") or not folder else f"{folder}/{name}"
