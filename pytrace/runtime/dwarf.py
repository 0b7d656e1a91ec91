"""DWARF of user binaries (and of a kernel image): parameters, source lines, inlined functions.

What probes and stacks ask of it; `dwarf_units` and its neighbours decode. All addresses are virtual addresses of the
file. A function is looked for in the unit that has its code, so few units are read, and of split ones only their files.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TypeVar

from pytrace.dataclass import dataclass
from pytrace.diagnostics import TraceError
from pytrace.kernel import UserParameter
from pytrace.runtime import debug_files
from pytrace.runtime.dwarf_calls import placed_parameters
from pytrace.runtime.dwarf_constants import At, Tag
from pytrace.runtime.dwarf_forms import DwarfError, MissingFileError
from pytrace.runtime.dwarf_lines import LineTable
from pytrace.runtime.dwarf_lists import ranges
from pytrace.runtime.dwarf_sections import FileSections
from pytrace.runtime.dwarf_types import DwarfTypes, described
from pytrace.runtime.dwarf_units import Die, Unit, UnitTable, initial_length
from pytrace.runtime.elf import ElfFile
from pytrace.runtime.split_dwarf import SplitUnits
from pytrace.types import Type

_Subject = TypeVar("_Subject")
_SCOPES = frozenset((Tag.NAMESPACE, Tag.CLASS_TYPE, Tag.STRUCTURE_TYPE))
"""Entries that functions with code may lie in."""
_NAMED = {
    "struct": (Tag.STRUCTURE_TYPE, Tag.CLASS_TYPE),
    "union": (Tag.UNION_TYPE,),
    "enum": (Tag.ENUMERATION_TYPE,),
}


@dataclass(frozen=True, slots=True)
class Place:
    """A function and the source line in it; *function* is the linkage name where there is one."""

    function: str
    file: str
    line: int


class _Reading:
    """Turns the decoder's complaints into a message with the file's name, and keeps those about missing files."""

    def __init__(self, path: str, missing: dict[str, None]) -> None:
        self._path = path
        self._missing = missing

    def __enter__(self) -> None:
        return

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        # A reference that leads back to where it came from ends as a recursion that is too deep.
        if isinstance(error, DwarfError | IndexError | struct.error | RecursionError):
            raise TraceError(f"{self._path}: its DWARF cannot be read: {error}") from error
        if isinstance(error, MissingFileError):
            self._missing[str(error)] = None
            return True
        return False


class DebugInfo:
    """The DWARF of one file.

    *beside* are further files that split units may lie beside (the binary of a debug file), *search* and *root* are as
    for :func:`debug_files.find`.
    """

    def __init__(self, path: str, beside: Iterable[str] = (), search: Iterable[str] = (), root: str = "") -> None:
        self.path = path
        self._search, self._root = tuple(search), root
        self._elf = ElfFile.open(path)
        self._sections = FileSections(self._elf)
        self._units = UnitTable(self._sections, supplement=self._supplement)
        self._split = SplitUnits((path, *beside), self._search, root)
        self._types = DwarfTypes(path, self._reading)
        self._tables: dict[Unit, LineTable] = {}
        self._functions: dict[Unit, list[tuple[int, int, Die]]] = {}
        self._missing: dict[str, None] = {}

    @staticmethod
    def present(path: str) -> bool:
        """Whether a file has DWARF with functions and lines."""
        with ElfFile.open(path) as file:
            return any(
                section.name in (".debug_info", ".zdebug_info") and section.type != 8 for section in file.sections
            )

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
            raise DwarfError("it refers to a supplementary file and does not name one")
        name, path = link
        if path is None:
            raise MissingFileError(f"{self.path}: its debug information goes on in {name}, which is not there")
        return UnitTable(FileSections(ElfFile.open(path)))

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
            return tuple(placed_parameters(die, entry, symbol, self._elf.machine, self._types))
        return None

    def result(self, symbol: str, address: int | None) -> Type | None:
        """Type of a function's result; None when DWARF does not have the function, ``VOID`` when it gives nothing."""
        with self._reading():
            die = self._function(symbol, address)
            return None if die is None else self._types.of(described(die, At.TYPE))
        return None

    def _function(self, symbol: str, address: int | None) -> Die | None:
        if address is None:
            return next((found for unit in self._units if (found := self._named(unit, symbol))), None)
        unit = self._unit_at(address)
        if unit is None:
            return None
        found = self._covering(unit, address)
        if found is not None and address in {low for low, _ in ranges(found)}:
            return found
        return self._named(unit, symbol)

    def _named(self, unit: Unit, name: str) -> Die | None:
        for _, _, die in self._functions_of(unit):
            if name in (_linkage_name(die), _name(die)):
                return die
        return None

    # ---- types

    def named_type(self, kind: str, name: str) -> Type | None:
        """The ``struct``, ``union`` or ``enum`` (*kind*) of that name; None when DWARF does not define it."""
        tags = _NAMED[kind]
        with self._reading():
            for unit in self._units:
                whole = self._split.whole(unit)
                for die in whole.top.children() if whole is not None else ():
                    if die.tag in tags and At.DECLARATION not in die and die.text(At.NAME) == name:
                        return self._types.type(die)
        return None

    # ---- source lines

    def addresses(
        self, file: str, line: int, column: int | None, start: Callable[[int], int | None] = lambda _: None
    ) -> list[int]:
        """Where the code of a source line starts: the first statement in each function that has it, in order.

        *file* is a path or its end (``main.c``, ``src/main.c``); *column* narrows the line to one statement. *start*
        knows where the function of an address starts when DWARF does not (a split unit that is not there).
        """
        found: dict[object, int] = {}
        with self._reading():
            for unit in self._units:
                table = self._lines(unit)
                numbers = {number for number, name in enumerate(table.files) if _same_file(name, file)}
                for row in table.rows if numbers else ():
                    wanted = row.line == line and row.statement and row.file in numbers
                    if wanted and (column is None or row.column == column):
                        die = self._covering(unit, row.address)
                        # A function may be in several pieces; what no function has stands for itself.
                        owner = (die.unit, die.offset) if die is not None else start(row.address) or row
                        found[owner] = min(found.get(owner, row.address), row.address)
        return sorted(set(found.values()))

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
        with self._reading():
            unit = self._unit_at(address)
            chain = self._chain(unit, address) if unit is not None else []
            if unit is not None and chain:
                return self._places(unit, chain, address)
        file, line = self.line_of(address)
        return [Place("", file, line)] if line else []

    def _places(self, unit: Unit, chain: list[Die], address: int) -> list[Place]:
        table = self._lines(unit)
        file, line = table.place(address)
        found = []
        for die in reversed(chain):
            found.append(Place(_linkage_name(die) or _name(die), file, line))
            file, line = table.file(die.number(At.CALL_FILE, -1)), die.number(At.CALL_LINE)
        return found

    def _chain(self, unit: Unit, address: int) -> list[Die]:
        """The function that covers an address and the inlined functions inside it, outermost first."""
        function = self._covering(unit, address)
        if function is None:
            return []
        chain, inner = [function], function
        while True:
            below = next((child for child in inner.children() if _covers(child, address)), None)
            if below is None:
                return chain
            inner = below
            if inner.tag == Tag.INLINED_SUBROUTINE:
                chain.append(inner)

    def _functions_of(self, unit: Unit) -> list[tuple[int, int, Die]]:
        """Start, end and entry of the functions with code in a unit, in order of address."""
        known = self._functions.get(unit)
        if known is None:
            known = []
            whole = self._split.whole(unit)
            waiting = [whole.top] if whole is not None else []
            while waiting:
                for die in waiting.pop().children():
                    if die.tag == Tag.SUBPROGRAM and die.row.code:
                        known += [(low, high, die) for low, high in ranges(die)]
                    elif die.tag in _SCOPES:
                        waiting.append(die)
            known.sort(key=lambda row: row[0])
            self._functions[unit] = known
        return known

    def _covering(self, unit: Unit, address: int) -> Die | None:
        return _found(self._functions_of(unit), address)

    # ---- units

    def _unit_at(self, address: int) -> Unit | None:
        """The unit of an address: by ``.debug_aranges``, else by asking the units that it leaves out."""
        start = _found(self._aranges, address)
        if start is None:
            start = _found(self._unit_ranges, address)
        return self._units.unit(start) if start is not None else None

    @cached_property
    def _aranges(self) -> list[tuple[int, int, int]]:
        """Start, end and unit of pieces of code, in order."""
        data, at = self._sections.section("aranges"), 0
        found = []
        while at < len(data):
            length, inside, offset_size = initial_length(data, at)
            unit = int.from_bytes(data[inside + 2 : inside + 2 + offset_size], "little")
            size = data[inside + 2 + offset_size]
            if size not in (4, 8):
                raise DwarfError(f".debug_aranges has addresses of {size} bytes")
            # Pairs of an address and a length, aligned to their size from the start of the set.
            pairs = at + -(-(inside + 4 + offset_size - at) // (2 * size)) * 2 * size
            at = inside + length
            layout = "<QQ" if size == 8 else "<II"
            body = data[pairs : at - (at - pairs) % (2 * size)]
            found += [(low, low + span, unit) for low, span in struct.iter_unpack(layout, body) if span]
        return sorted(found)

    @cached_property
    def _unit_ranges(self) -> list[tuple[int, int, int]]:
        """The same for the units that ``.debug_aranges`` does not have (those of clang), from the units themselves."""
        known = {unit for _, _, unit in self._aranges}
        return sorted(
            (low, high, unit.start) for unit in self._units if unit.start not in known for low, high in ranges(unit.top)
        )


def _found(rows: list[tuple[int, int, _Subject]], address: int) -> _Subject | None:
    """What a row with the start and end of code says, in rows in order of address."""
    at = bisect_right(rows, address, key=lambda row: row[0]) - 1
    return rows[at][2] if at >= 0 and address < rows[at][1] else None


def _covers(die: Die, address: int) -> bool:
    if die.tag not in (Tag.INLINED_SUBROUTINE, Tag.LEXICAL_BLOCK):
        return False
    return any(low <= address < high for low, high in ranges(die))


def _name(die: Die) -> str:
    return described(die, At.NAME).text(At.NAME)


def _linkage_name(die: Die) -> str:
    return described(die, At.LINKAGE_NAME).text(At.LINKAGE_NAME)


def _same_file(path: str, wanted: str) -> bool:
    return path == wanted or path.endswith(f"/{wanted.removeprefix('./')}")
