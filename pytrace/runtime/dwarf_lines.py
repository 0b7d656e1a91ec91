"""Line tables: source files of a unit, and which line each address belongs to.

Source: the DWARF 5 standard, section 6.2; DWARF 4 for the older header.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from typing import Any, NamedTuple

from pytrace.runtime.dwarf_constants import At
from pytrace.runtime.dwarf_forms import DwarfError, forms, sleb128, terminated, uleb128
from pytrace.runtime.dwarf_units import Unit, initial_length

_PATH, _DIRECTORY = 1, 2
"""``DW_LNCT_path``, ``DW_LNCT_directory_index``."""
_COPY = 1
_END_SEQUENCE, _SET_ADDRESS, _DEFINE_FILE = 1, 2, 3


class Row(NamedTuple):
    """Code from *address* on comes from a line; *line* 0 ends a run of code. *file* is a number in the file table."""

    address: int
    file: int
    line: int
    column: int
    statement: bool


class _Registers:
    """The state of the machine that runs line programs; *step* is the least length of an instruction."""

    __slots__ = ("address", "column", "file", "leap", "line", "statement", "step")

    def __init__(self, statement: bool, step: int, leap: int) -> None:
        self.address, self.file, self.line, self.column = 0, 1, 1, 0
        self.statement, self.step, self.leap = statement, step, leap

    def advance_pc(self, data: bytes, at: int) -> int:
        value, at = uleb128(data, at)
        self.address += value * self.step
        return at

    def advance_line(self, data: bytes, at: int) -> int:
        value, at = sleb128(data, at)
        self.line += value
        return at

    def set_file(self, data: bytes, at: int) -> int:
        self.file, at = uleb128(data, at)
        return at

    def set_column(self, data: bytes, at: int) -> int:
        self.column, at = uleb128(data, at)
        return at

    def negate_statement(self, _: bytes, at: int) -> int:
        self.statement = not self.statement
        return at

    def const_add_pc(self, _: bytes, at: int) -> int:
        self.address += self.leap
        return at

    def fixed_advance_pc(self, data: bytes, at: int) -> int:
        self.address += int.from_bytes(data[at : at + 2], "little")
        return at + 2


_STANDARD = {
    2: _Registers.advance_pc, 3: _Registers.advance_line, 4: _Registers.set_file, 5: _Registers.set_column,
    6: _Registers.negate_statement, 8: _Registers.const_add_pc, 9: _Registers.fixed_advance_pc,
}  # fmt: skip
"""``DW_LNS_*`` but ``DW_LNS_copy``; those that are not here change nothing that is asked for."""


class LineTable:
    """The line table of one unit; an empty one for a unit without."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._data = b""
        self._folders: list[str] = [unit.top.text(At.COMP_DIR)]
        self.files: list[str] = []
        if At.STMT_LIST in unit.top:
            self._read(unit.top.number(At.STMT_LIST))

    def _read(self, start: int) -> None:
        view = self._unit.table.sections.section("line")
        length, at, self._offset_size = initial_length(view, start)
        self._data = bytes(view[start : at + length])
        at -= start
        self._version = int.from_bytes(self._data[at : at + 2], "little")
        self._address_size = self._data[at + 2] if self._version >= 5 else self._unit.address_size
        if not 2 <= self._version <= 5:
            raise DwarfError(f"version {self._version} of a line table is unknown")
        at += 4 if self._version >= 5 else 2
        header = int.from_bytes(self._data[at : at + self._offset_size], "little")
        at += self._offset_size
        self._program = at + header
        self._step = self._data[at]
        # DWARF 4 has one field more: how many operations an instruction holds (1 but on VLIW machines).
        at += 2 if self._version >= 4 else 1
        self._is_statement = bool(self._data[at])
        self._line_base = int.from_bytes(self._data[at + 1 : at + 2], "little", signed=True)
        self._line_range, opcodes = self._data[at + 2], self._data[at + 3]
        if not self._line_range or not opcodes:
            raise DwarfError("the header of a line table is damaged")
        self._operands = bytes((0,)) + self._data[at + 4 : at + 3 + opcodes]
        at += 3 + opcodes
        if self._version >= 5:
            self._read_tables(at)
        else:
            self._read_old_tables(at)

    # ---- files

    def _read_tables(self, at: int) -> None:
        compiled_in = self._folders[0]
        folders, at = self._table(at)
        # The first folder is that of the compilation, and the others may be relative to it.
        self._folders = [name if not number else _joined(compiled_in, name) for number, (name, _) in enumerate(folders)]
        files, _ = self._table(at)
        self.files = [self._path(name, folder) for name, folder in files]

    def _table(self, at: int) -> tuple[list[tuple[str, int]], int]:
        """Names and folder numbers of a table that describes its own columns."""
        data, readers = self._data, forms(5, self._address_size, self._offset_size).readers
        columns = []
        count = data[at]
        at += 1
        for _ in range(count):
            kind, at = uleb128(data, at)
            form, at = uleb128(data, at)
            columns.append((kind, form))
        rows, at = uleb128(data, at)
        if rows > len(data):
            raise DwarfError("a table of files is longer than all line tables")
        found = []
        for _ in range(rows):
            name, folder = "", 0
            for kind, form in columns:
                if form not in readers:
                    raise DwarfError(f"form {form:#x} in a line table is unknown")
                value: Any
                value, at = readers[form](data, at)
                if kind == _PATH:
                    name = self._unit.string(form, value).decode(errors="replace")
                elif kind == _DIRECTORY:
                    folder = value
            found.append((name, folder))
        return found, at

    def _read_old_tables(self, at: int) -> None:
        # Before DWARF 5 both tables count from 1, and folder 0 is that of the compilation.
        data = self._data
        while data[at]:
            name, at = terminated(data, at)
            self._folders.append(_joined(self._folders[0], name.decode(errors="replace")))
        at += 1
        self.files.append("")
        while data[at]:
            at = self._old_file(at)

    def _old_file(self, at: int) -> int:
        name, at = terminated(self._data, at)
        folder, at = uleb128(self._data, at)
        for _ in ("time", "length"):
            _, at = uleb128(self._data, at)
        self.files.append(self._path(name.decode(errors="replace"), folder))
        return at

    def _path(self, name: str, folder: int) -> str:
        return _joined(self._folders[folder] if folder < len(self._folders) else "", name)

    def file(self, number: int) -> str:
        """Path of a file by the number that rows and call sites use; empty when there is none."""
        return self.files[number] if 0 <= number < len(self.files) else ""

    # ---- rows

    @cached_property
    def rows(self) -> list[Row]:
        """All rows in order of address; a row that ends a run comes before one that begins another there."""
        found: list[Row] = []
        at = self._program if self._data else 0
        while at < len(self._data):
            at = self._sequence(at, found)
        found.sort(key=lambda row: (row.address, row.line != 0))
        return found

    def _sequence(self, at: int, found: list[Row]) -> int:
        """Run the line program to the end of a sequence; gives the position behind it."""
        data, end = self._data, len(self._data)
        step, base, span, first_special = self._step, self._line_base, self._line_range, len(self._operands)
        state = _Registers(self._is_statement, step, (255 - first_special) // span * step)
        while at < end:
            code = data[at]
            at += 1
            if code >= first_special:
                state.address += (code - first_special) // span * step
                state.line += base + (code - first_special) % span
                found.append(Row(state.address, state.file, state.line, state.column, state.statement))
            elif code == 0:
                size, at = uleb128(data, at)
                kind = data[at] if size else 0
                if kind == _END_SEQUENCE:
                    found.append(Row(state.address, state.file, 0, 0, False))
                    return at + size
                if kind == _SET_ADDRESS:
                    state.address = int.from_bytes(data[at + 1 : at + size], "little")
                elif kind == _DEFINE_FILE:
                    self._old_file(at + 1)
                at += size
            elif code == _COPY:
                found.append(Row(state.address, state.file, state.line, state.column, state.statement))
            elif code in _STANDARD:
                at = _STANDARD[code](state, data, at)
            else:
                for _ in range(self._operands[code]):
                    _, at = uleb128(data, at)
        return at

    def place(self, address: int) -> tuple[str, int]:
        """Source file and line of an address; empty and 0 when they are not known."""
        at = bisect_right(self.rows, address, key=lambda row: row.address) - 1
        if at < 0 or not self.rows[at].line:
            return "", 0
        return self.file(self.rows[at].file), self.rows[at].line


def _joined(folder: str, name: str) -> str:
    return name if name.startswith("/") or not folder else f"{folder}/{name}"
