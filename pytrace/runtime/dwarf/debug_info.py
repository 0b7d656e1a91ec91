"""DWARF of user binaries (and of a kernel image): parameters, source lines, inlined functions.

pyelftools decodes, with additions in `units` and other modules of this package. All addresses
are virtual addresses of the file. A function is looked for in the unit that has its code, so few units are read, and of
split ones only their files.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from elftools.common.exceptions import DWARFError

from pytrace.base import progress
from pytrace.core.diagnostics import TraceError
from pytrace.runtime.dwarf import go_parameters
from pytrace.runtime.dwarf.lines import LineTable
from pytrace.runtime.dwarf.lists import ranges
from pytrace.runtime.dwarf.parameters import placed_parameters
from pytrace.runtime.dwarf.places import Place, Places
from pytrace.runtime.dwarf.scopes import Functions, segments
from pytrace.runtime.dwarf.sections import FileSections
from pytrace.runtime.dwarf.split import SplitUnits
from pytrace.runtime.dwarf.units import COMPLAINTS, Die, MissingFileError, Unit, UnitTable, explained
from pytrace.runtime.dwarf.value_types import DwarfTypes, described
from pytrace.runtime.elf import debug_files
from pytrace.runtime.elf.file import ElfFile

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from pytrace.core.kernel_info import UserParameter
    from pytrace.core.types import Type

_NAMED = {
    "struct": ("DW_TAG_structure_type", "DW_TAG_class_type"),
    "union": ("DW_TAG_union_type",),
    "enum": ("DW_TAG_enumeration_type",),
}


class _Reading:
    """Converts exceptions of pyelftools to a message with the file's name, and collects those about missing files."""

    def __init__(self, path: str, missing: dict[str, None]) -> None:
        self._path = path
        self._missing = missing
        self._step = progress.detail(f"reading debug information of {path}")

    def __enter__(self) -> None:
        self._step.__enter__()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        self._step.__exit__(None, None, None)
        if isinstance(error, COMPLAINTS):
            raise TraceError(f"{self._path}: its DWARF cannot be read: {explained(error)}") from error
        if isinstance(error, MissingFileError):
            self._missing[str(error)] = None
            return True
        return False


MOST_READ = 24 << 20
"""Bytes, about, of line tables and functions of units in memory: what stacks needed of them is cached as places."""
_ROW, _EXTENT, _UNIT = 20, 100, 1 << 15
"""Bytes, about, that a row of a line table takes, an entry whose end is known, and a unit."""


class DebugInfo:
    """The DWARF of one file.

    What is read for stacks is put into *places*. *beside* are further files that split units may lie beside (the binary
    of a debug file), *search* and *root* are as for :func:`debug_files.find`.
    """

    def __init__(
        self, elf: ElfFile, places: Places, beside: Iterable[str] = (), search: Iterable[str] = (), root: str = ""
    ) -> None:
        path = self.path = elf.path
        self._search, self._root = tuple(search), root
        self._elf = elf
        self._sections = FileSections(elf)
        self._units = UnitTable(self._sections, supplement=self._supplement)
        self._split = SplitUnits((path, *beside), self._search, root)
        self._types = DwarfTypes(path, self._reading)
        self._named_types: dict[tuple[str, str], Type | None] = {}
        self._tables: dict[Unit, LineTable] = {}
        self._functions: dict[Unit, Functions] = {}
        self._missing: dict[str, None] = {}
        self._places = places
        self._code: list[tuple[int, int, int]] | None = None
        self._left_out: list[tuple[int, int, int]] | None = None

    @property
    def problems(self) -> list[str]:
        """Files with parts of the debug information that were asked for and are not there, as sentences."""
        return [*self._split.problems, *self._missing]

    @property
    def files(self) -> list[str]:
        """Other files that answers depend on, also those that are not there."""
        return list(self._split.opened)

    def _reading(self) -> _Reading:
        return _Reading(self.path, self._missing)

    def _supplement(self) -> UnitTable:
        link = debug_files.supplement(self._elf, self._search, self._root)
        if link is None:
            raise DWARFError("it refers to a supplementary file and does not name one")
        name, path = link
        if path is None:
            raise MissingFileError(f"{self.path}: its debug information continues in {name}, which does not exist")
        try:
            return UnitTable(FileSections(ElfFile.open(path)))
        except OSError as error:
            problem = f"{self.path}: its debug information continues in {path}, which cannot be read: {error.strerror}"
            raise MissingFileError(problem) from error

    # ---- parameters

    def parameters(self, symbol: str, address: int | None) -> tuple[UserParameter, ...] | None:
        """Parameters of a function and where they are when it is entered; None when DWARF does not have it.

        One that the compiler removed, or that is in registers in pieces, is left out.
        """
        with self._reading():
            die = self._function(symbol, address)
            if die is None:
                return None
            entry = address if address is not None else ranges(die)[0][0]
            if go_parameters.is_go(die):
                return tuple(go_parameters.parameters(die, entry, self._types))
            return tuple(placed_parameters(die, entry, symbol, self._elf.machine, self._types))
        return None

    def result(self, symbol: str, address: int | None) -> Type | None:
        """Type of a function's result; None when DWARF does not have the function, ``VOID`` when it returns nothing."""
        with self._reading():
            die = self._function(symbol, address)
            return None if die is None else self._types.of(described(die, "DW_AT_type"))
        return None

    def go_result(self, symbol: str, address: int | None) -> UserParameter | None:
        """The first result of a function of Go when it returns; None when it has none, or is not known."""
        with self._reading():
            die = self._function(symbol, address)
            found = [] if die is None or not go_parameters.is_go(die) else go_parameters.results(die, self._types)
            return found[0] if found else None
        return None

    def _function(self, symbol: str, address: int | None) -> Die | None:
        if address is None:
            return next((die for unit in self._units if (die := self._named(unit, symbol))), None)
        unit = self._unit_at(address)
        if unit is None:
            return None
        die = self._covering(unit, address)
        if die is not None and address in {low for low, _ in ranges(die)}:
            return die
        return self._named(unit, symbol)

    def _named(self, unit: Unit, name: str) -> Die | None:
        for die in self._functions_of(unit):
            if name in (_linkage_name(die), _name(die)):
                return die
        return None

    # ---- types

    def named_type(self, kind: str, name: str) -> Type | None:
        """The ``struct``, ``union`` or ``enum`` (*kind*) of that name; None when DWARF does not define it."""
        if (kind, name) not in self._named_types:
            self._named_types[kind, name] = self._find_type(kind, name)
        return self._named_types[kind, name]

    def _find_type(self, kind: str, name: str) -> Type | None:
        tags = _NAMED[kind]
        with self._reading():
            if not self._mentions(name):
                return None
            for unit in self._units:
                whole = self._split.whole(unit)
                for die in whole.top.children(lambda shape: shape.tag in tags) if whole is not None else ():
                    if "DW_AT_declaration" not in die and die.text("DW_AT_name") == name:
                        return self._types.type(die)
        return None

    def _mentions(self, name: str) -> bool:
        """True if a name is anywhere in the debug information, where that can be told without reading units: looking
        through all units of a large library for a type that it does not have takes seconds.
        """
        sections = [self._sections]
        if self._sections.index("addr").data:
            return True  # units may be split
        link = debug_files.supplement(self._elf, self._search, self._root)
        if link is not None:
            if link[1] is None:
                return True
            try:
                sections.append(FileSections(ElfFile.open(link[1])))
            except OSError:
                return True  # reading the units reports it
        text = name.encode(errors="surrogateescape") + b"\0"
        return any(text in bytes(of.section(part).data) for of in sections for part in ("str", "info", "types"))

    # ---- source lines

    def addresses(
        self, file: str, line: int, column: int | None, start: Callable[[int], int | None] = lambda _: None
    ) -> list[int]:
        """Where the code of a source line starts: the first statement in each function that has it, in order.

        *file* is a path or its end (``main.c``, ``src/main.c``); *column* narrows the line to one statement. *start*
        knows where the function of an address starts when DWARF does not (a split unit that is not there).
        """
        starts: dict[object, int] = {}
        with self._reading():
            for unit in self._units:
                table = self._lines(unit)
                numbers = {number for number, name in enumerate(table.files) if _same_file(name, file)}
                for row in table.rows(line, numbers) if numbers else ():
                    if row.statement and (column is None or row.column == column):
                        die = self._covering(unit, row.address)
                        # A function may be in several pieces; what no function has stands for itself.
                        owner = (die.cu, die.offset) if die is not None else start(row.address) or row
                        starts[owner] = min(starts.get(owner, row.address), row.address)
        return sorted(set(starts.values()))

    def line_of(self, address: int) -> tuple[str, int]:
        """Source file and line of an address; empty and 0 when they are not known."""
        with self._reading():
            unit = self._unit_at(address)
            return self._lines(unit).place(address) if unit is not None else ("", 0)
        return "", 0

    def _lines(self, unit: Unit) -> LineTable:
        table = self._tables.get(unit)
        if table is None:
            table = self._tables[unit] = LineTable(unit)
        return table

    # ---- functions of an address

    def frames(self, address: int) -> list[Place]:
        """The functions of an address: inlined ones first, the function itself last; empty when it is not known.

        One place with an empty function where only the line is known: of assembly, and where the file with the rest is
        not there.
        """
        for _ in self.reading(address):
            pass
        places = self._places.find(address)
        if places is None:
            file, line = self.line_of(address)
            return [Place("", file, line)] if line else []
        return places

    def reading(self, address: int) -> Iterator[None]:
        """Read what :meth:`frames` needs for an address, in steps of some milliseconds."""
        if self._places.knows(address):
            return
        if self._weight() > MOST_READ:
            self._forget()
        with self._reading():
            row = yield from self._row_at(address)
            if row is not None:
                yield from self._read_piece(row, address)
        if self._split.opened or self._missing:
            # Files that come, go and change by themselves.
            self._places.forget_kept()

    def _read_piece(self, row: tuple[int, int, int], address: int) -> Generator[None, None, None]:
        first, end, start = row
        unit = self._units.unit(start)
        try:
            functions, table = self._functions_of(unit), self._lines(unit)
            yield from functions.reading()
            yield from table.reading()
            low, high, scope = functions.around(address)
            low, high = max(low, first), min(high, end)
            self._places.add(low, high, segments(low, high, scope, table), table)
        except COMPLAINTS:
            # What was read in part shall not be taken for the whole.
            self._functions.pop(unit, None)
            self._tables.pop(unit, None)
            raise

    def _functions_of(self, unit: Unit) -> Functions:
        known = self._functions.get(unit)
        if known is None:
            known = self._functions[unit] = Functions(self._split.whole(unit))
        return known

    def _covering(self, unit: Unit, address: int) -> Die | None:
        return self._functions_of(unit).covering(address)

    # ---- units

    def _weight(self) -> int:
        """About how many bytes the units that were read take."""
        rows = sum(map(len, self._tables.values())) + sum(map(len, self._functions.values()))
        known = sum(functions.known for functions in self._functions.values())
        return _ROW * rows + _EXTENT * known + _UNIT * len(self._functions)

    def _forget(self) -> None:
        """Let go of all units that were read."""
        self._units = UnitTable(self._sections, supplement=self._supplement)
        self._split.forget()
        self._functions.clear()
        self._tables.clear()

    def _unit_at(self, address: int) -> Unit | None:
        """The unit of an address."""
        steps = self._row_at(address)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return None if end.value is None else self._units.unit(end.value[2])

    def _row_at(self, address: int) -> Generator[None, None, tuple[int, int, int] | None]:
        """Start, end and unit of code: by ``.debug_aranges``, else by asking the units that it leaves out."""
        if self._code is None:
            self._code = self._units.code
        row = _found(self._code, address)
        if row is None:
            if self._left_out is None:
                yield from self._find_left_out(self._code)
            row = _found(self._left_out or [], address)
        return row

    def _find_left_out(self, code: list[tuple[int, int, int]]) -> Generator[None, None, None]:
        """Find the code of the units that ``.debug_aranges`` does not have (those of clang)."""
        rows = self._places.left_out()
        if rows is None:
            known = {unit for _, _, unit in code}
            rows = []
            for unit in self._units:
                yield
                if unit.cu_offset not in known:
                    rows += [(low, high, unit.cu_offset) for low, high in ranges(unit.top)]
            rows.sort()
            self._places.set_left_out(rows)
        self._left_out = rows


def _found(rows: list[tuple[int, int, int]], address: int) -> tuple[int, int, int] | None:
    """The row whose code has an address, in rows in order of address."""
    at = bisect_right(rows, address, key=lambda row: row[0]) - 1
    return rows[at] if at >= 0 and address < rows[at][1] else None


def _name(die: Die) -> str:
    return described(die, "DW_AT_name").text("DW_AT_name")


def _linkage_name(die: Die) -> str:
    return described(die, "DW_AT_linkage_name").text("DW_AT_linkage_name")


def _same_file(path: str, wanted: str) -> bool:
    return path == wanted or path.endswith(f"/{wanted.removeprefix('./')}")
