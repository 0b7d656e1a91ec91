"""Line tables: source files of a unit, and which line each address belongs to. pyelftools reads their headers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

from pytrace.runtime.dwarf.line_programs import LineMachine, LineRows

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

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
        found = [] if header["version"] >= 5 else [""]
        for entry in header["file_entry"] or ():
            number = entry.dir_index or 0
            found.append(_joined(folders[number] if number < len(folders) else "", _text(entry.name)))
        self._folders = folders
        return found

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
