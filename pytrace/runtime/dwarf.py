"""DWARF of user binaries (and of a kernel image): parameters, source lines, inlined functions.

What probes and stacks ask of it; pyelftools decodes, with additions in `dwarf_units` and its neighbours. All addresses
are virtual addresses of the file. A function is looked for in the unit that has its code, so few units are read, and of
split ones only their files.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TypeVar

from elftools.common.exceptions import DWARFError

from pytrace.dataclass import dataclass
from pytrace.diagnostics import TraceError
from pytrace.kernel import UserParameter
from pytrace.runtime import debug_files
from pytrace.runtime.dwarf_calls import placed_parameters
from pytrace.runtime.dwarf_forms import Shape
from pytrace.runtime.dwarf_lines import LineTable
from pytrace.runtime.dwarf_lists import ranges
from pytrace.runtime.dwarf_sections import FileSections
from pytrace.runtime.dwarf_types import DwarfTypes, described
from pytrace.runtime.dwarf_units import COMPLAINTS, Die, MissingFileError, Unit, UnitTable, explained
from pytrace.runtime.elf import ElfFile
from pytrace.runtime.split_dwarf import SplitUnits
from pytrace.types import Type

_Subject = TypeVar("_Subject")
_SCOPES = frozenset(("DW_TAG_namespace", "DW_TAG_class_type", "DW_TAG_structure_type"))
"""Entries that functions with code may lie in."""
_NAMED = {
    "struct": ("DW_TAG_structure_type", "DW_TAG_class_type"),
    "union": ("DW_TAG_union_type",),
    "enum": ("DW_TAG_enumeration_type",),
}


@dataclass(frozen=True, slots=True)
class Place:
    """A function and the source line in it; *function* is the linkage name where there is one."""

    function: str
    file: str
    line: int


class _Reading:
    """Turns pyelftools' complaints into a message with the file's name, and keeps those about missing files."""

    def __init__(self, path: str, missing: dict[str, None]) -> None:
        self._path = path
        self._missing = missing

    def __enter__(self) -> None:
        return

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        if isinstance(error, COMPLAINTS):
            raise TraceError(f"{self._path}: its DWARF cannot be read: {explained(error)}") from error
        if isinstance(error, MissingFileError):
            self._missing[str(error)] = None
            return True
        return False


KEPT = 16
"""Units whose functions and lines are kept for stacks: a run of days comes by most of a library's. What they said of an
address is remembered elsewhere, so a unit is read again for new places only."""


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
            return None if die is None else self._types.of(described(die, "DW_AT_type"))
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
                for die in whole.top.children(lambda shape: shape.tag in tags) if whole is not None else ():
                    if "DW_AT_declaration" not in die and die.text("DW_AT_name") == name:
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
                for row in table.rows(line, numbers) if numbers else ():
                    if row.statement and (column is None or row.column == column):
                        die = self._covering(unit, row.address)
                        # A function may be in several pieces; what no function has stands for itself.
                        owner = (die.cu, die.offset) if die is not None else start(row.address) or row
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
        if max(len(self._functions), len(self._tables)) > KEPT:
            self._forget()
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
            file, line = table.file(die.number("DW_AT_call_file", -1)), die.number("DW_AT_call_line")
        return found

    def _chain(self, unit: Unit, address: int) -> list[Die]:
        """The function that covers an address and the inlined functions inside it, outermost first."""
        function = self._covering(unit, address)
        if function is None:
            return []
        chain, inner = [function], function
        while True:
            below = next((child for child in inner.children(_inside) if _covers(child, address)), None)
            if below is None:
                return chain
            inner = below
            if inner.tag == "DW_TAG_inlined_subroutine":
                chain.append(inner)

    def _functions_of(self, unit: Unit) -> list[tuple[int, int, Die]]:
        """Start, end and entry of the functions with code in a unit, in order of address."""
        known = self._functions.get(unit)
        if known is None:
            known = []
            whole = self._split.whole(unit)
            waiting = [whole.top] if whole is not None else []
            while waiting:
                for die in waiting.pop().children(_leads_to_code):
                    if die.tag == "DW_TAG_subprogram":
                        known += [(low, high, die) for low, high in ranges(die)]
                    else:
                        waiting.append(die)
            known.sort(key=lambda row: row[0])
            self._functions[unit] = known
        return known

    def _covering(self, unit: Unit, address: int) -> Die | None:
        return _found(self._functions_of(unit), address)

    # ---- units

    def _forget(self) -> None:
        """Let go of all units that were read, but not of the sections: reading these takes longest."""
        code = self._units.code
        self._units = UnitTable(self._sections, supplement=self._supplement)
        self._units.code = code
        self._split.forget()
        self._functions.clear()
        self._tables.clear()

    def _unit_at(self, address: int) -> Unit | None:
        """The unit of an address: by ``.debug_aranges``, else by asking the units that it leaves out."""
        start = _found(self._units.code, address)
        if start is None:
            start = _found(self._unit_ranges, address)
        return self._units.unit(start) if start is not None else None

    @cached_property
    def _unit_ranges(self) -> list[tuple[int, int, int]]:
        """Start, end and unit of code of the units that ``.debug_aranges`` does not have (those of clang)."""
        known = {unit for _, _, unit in self._units.code}
        return sorted(
            (low, high, unit.cu_offset)
            for unit in self._units
            if unit.cu_offset not in known
            for low, high in ranges(unit.top)
        )


def _found(rows: list[tuple[int, int, _Subject]], address: int) -> _Subject | None:
    """What a row with the start and end of code says, in rows in order of address."""
    at = bisect_right(rows, address, key=lambda row: row[0]) - 1
    return rows[at][2] if at >= 0 and address < rows[at][1] else None


def _leads_to_code(shape: Shape) -> bool:
    return shape.tag in _SCOPES or (shape.tag == "DW_TAG_subprogram" and shape.code)


def _inside(shape: Shape) -> bool:
    return shape.tag in ("DW_TAG_inlined_subroutine", "DW_TAG_lexical_block") and shape.code


def _covers(die: Die, address: int) -> bool:
    return any(low <= address < high for low, high in ranges(die))


def _name(die: Die) -> str:
    return described(die, "DW_AT_name").text("DW_AT_name")


def _linkage_name(die: Die) -> str:
    return described(die, "DW_AT_linkage_name").text("DW_AT_linkage_name")


def _same_file(path: str, wanted: str) -> bool:
    return path == wanted or path.endswith(f"/{wanted.removeprefix('./')}")
