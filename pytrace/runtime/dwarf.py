"""DWARF of user binaries (and of a kernel image): parameters, source lines, inlined functions.

pyelftools does the decoding; here is what probes and stacks ask of it. All addresses are virtual addresses of the file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from pytrace.dataclass import dataclass
from pytrace.diagnostics import TraceError
from pytrace.kernel import UserParameter
from pytrace.runtime.dwarf_types import DwarfTypes, type_text
from pytrace.runtime.elf import EM_AARCH64, EM_X86_64, ElfFile
from pytrace.types import Array, Pointer, Struct, Type

_INTEGER_REGISTERS = {
    EM_X86_64: ("di", "si", "dx", "cx", "r8", "r9"),
    EM_AARCH64: tuple(f"r{number}" for number in range(8)),
}
"""Registers of the first integer arguments."""

_DWARF_REGISTERS = {
    EM_X86_64: ("ax", "dx", "cx", "bx", "si", "di", "bp", "sp", *(f"r{number}" for number in range(8, 16))),
    EM_AARCH64: (*(f"r{number}" for number in range(31)), "sp"),
}
"""Names of registers by their DWARF numbers."""

_FIRST_STACK_ARGUMENT = {EM_X86_64: 8, EM_AARCH64: 0}
"""Distance from the stack pointer at a function's entry to its first argument in memory."""

_OP_REG0, _OP_REG31 = 0x50, 0x6F


@dataclass(frozen=True, slots=True)
class Place:
    """A function and the source line in it; *function* is the linkage name where there is one."""

    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of a line table: *line* 0 ends a sequence."""

    address: int
    file: str
    line: int
    column: int
    statement: bool


class DebugInfo:
    """The DWARF of one file."""

    def __init__(self, path: str) -> None:
        from elftools.common.exceptions import DWARFError, ELFError
        from elftools.elf.elffile import ELFFile

        self.path = path
        self._errors = (DWARFError, ELFError)
        with self._reading():
            self._file = ELFFile(open(path, "rb"))  # noqa: SIM115 - read lazily for as long as this object lives
            self._dwarf = self._file.get_dwarf_info()
        self._machine = EM_X86_64 if self._file["e_machine"] == "EM_X86_64" else (
            EM_AARCH64 if self._file["e_machine"] == "EM_AARCH64" else 0
        )  # fmt: skip
        self._types = DwarfTypes(path)
        self._rows: dict[int, list[_Row]] = {}
        self._functions: dict[int, list[tuple[int, int, Any]]] = {}

    @staticmethod
    def present(path: str) -> bool:
        """Whether a file has DWARF with functions and lines."""
        with ElfFile.open(path) as file:
            return any(
                section.name in (".debug_info", ".zdebug_info") and section.type != 8 for section in file.sections
            )

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn the decoder's complaints into a message with the file's name."""
        try:
            yield
        except (*self._errors, KeyError, IndexError) as error:
            raise TraceError(f"{self.path}: its DWARF cannot be read: {error}") from error

    # ---- parameters

    def parameters(self, symbol: str, address: int | None) -> tuple[UserParameter, ...] | None:
        """Parameters of a function and where they are when it is entered; None when DWARF does not have it.

        One that the compiler removed, or that is in registers in pieces, is left out.
        """
        with self._reading():
            die = self._function_at(address) if address is not None else None
            if die is None:
                die = self._function_named(symbol)
            if die is None:
                return None
            entry = address if address is not None else _low_high(die)[0]
            return tuple(self._placed_parameters(die, entry))

    def result(self, symbol: str, address: int | None) -> Type | None:
        """Type of a function's result; None when DWARF does not have the function, ``VOID`` when it gives nothing."""
        with self._reading():
            die = self._function_at(address) if address is not None else None
            if die is None:
                die = self._function_named(symbol)
            return None if die is None else self._types.of(_described(die, "DW_AT_type"))

    def _placed_parameters(self, die: Any, entry: int) -> Iterator[UserParameter]:
        registers = iter(_INTEGER_REGISTERS.get(self._machine, ()))
        stack = _FIRST_STACK_ARGUMENT.get(self._machine, 0)
        for number, child in enumerate(
            child for child in die.iter_children() if child.tag == "DW_TAG_formal_parameter"
        ):
            kind = self._types.of(_described(child, "DW_AT_type"))
            name = _name(child) or f"arg{number}"
            by_convention = ""
            if kind.scalar:
                register = next(registers, "")
                by_convention = register or f"sp+{stack}"
                stack += 0 if register else 8
            elif isinstance(kind, Struct) and kind.size > 16 and self._machine == EM_X86_64:
                by_convention = f"sp+{stack}"
                stack += kind.size + 7 & ~7
            elif isinstance(kind, Struct) and kind.size <= 16 and not _has_floats(kind):
                for _ in range((kind.size + 7) // 8):
                    next(registers, "")
            location = self._register_at(child, entry)
            if location is None:
                location = by_convention
            if location:
                yield UserParameter(name, kind, location, type_text(_described(child, "DW_AT_type")))

    def _register_at(self, die: Any, address: int) -> str | None:
        """The register that DWARF says a parameter is in at the entry; None when it says memory, empty for nowhere.

        Code without optimisation stores parameters to the stack in the prologue: DWARF then describes that place,
        which holds nothing yet at the entry.
        """
        from elftools.dwarf.locationlists import LocationEntry, LocationExpr, LocationParser

        attribute = die.attributes.get("DW_AT_location")
        if attribute is None:
            return "" if "DW_AT_const_value" in die.attributes else None
        found: Any = LocationParser(self._dwarf.location_lists()).parse_from_attribute(
            attribute, die.cu["version"], die
        )
        if isinstance(found, LocationExpr):
            return self._register(found.loc_expr)
        base = _number(die.cu.get_top_DIE(), "DW_AT_low_pc")
        for entry in found:
            if not isinstance(entry, LocationEntry):
                base = entry.base_address
                continue
            start = 0 if entry.is_absolute else base
            if start + entry.begin_offset <= address < start + entry.end_offset:
                return self._register(entry.loc_expr)
        return None

    def _register(self, expression: list[int]) -> str | None:
        names = _DWARF_REGISTERS.get(self._machine, ())
        if len(expression) == 1 and _OP_REG0 <= expression[0] <= _OP_REG31:
            number = expression[0] - _OP_REG0
            return names[number] if number < len(names) else None
        return None

    def _function_named(self, name: str) -> Any | None:
        for unit in self._dwarf.iter_CUs():
            for _, _, die in self._functions_of(unit):
                if name in (_linkage_name(die), _name(die)):
                    return die
        return None

    # ---- source lines

    def addresses(self, file: str, line: int, column: int | None) -> list[int]:
        """Where the code of a source line starts: the first statement in each function that has it, in order.

        *file* is a path or its end (``main.c``, ``src/main.c``); *column* narrows the line to one statement.
        """
        with self._reading():
            found: dict[int, int] = {}
            for unit in self._dwarf.iter_CUs():
                if not any(_same_file(name, file) for name in self._file_names(unit)):
                    continue
                for row in self._lines(unit):
                    wanted = row.line == line and row.statement and _same_file(row.file, file)
                    if wanted and (column is None or row.column == column):
                        owner = self._function_start(unit, row.address)
                        found[owner] = min(found.get(owner, row.address), row.address)
            return sorted(set(found.values()))

    def line_of(self, address: int) -> tuple[str, int]:
        """Source file and line of an address; empty and 0 when they are not known."""
        with self._reading():
            unit = self._unit_at(address)
            return self._line_in(unit, address) if unit is not None else ("", 0)

    def _line_in(self, unit: Any, address: int) -> tuple[str, int]:
        rows = self._lines(unit)
        at = bisect_right(rows, address, key=lambda row: row.address) - 1
        return (rows[at].file, rows[at].line) if at >= 0 and rows[at].line else ("", 0)

    def _file_names(self, unit: Any) -> list[str]:
        """Paths of a unit's file table, by the numbers that its rows and call sites use."""
        program = self._dwarf.line_program_for_CU(unit)
        if program is None:
            return []
        header = program.header
        top = unit.get_top_DIE().attributes
        compiled_in = top["DW_AT_comp_dir"].value.decode(errors="replace") if "DW_AT_comp_dir" in top else ""
        directories = [text.decode(errors="replace") for text in header["include_directory"]]
        names = []
        if header["version"] < 5:
            # Before DWARF 5 both tables count from 1, and directory 0 is that of the compilation.
            directories.insert(0, compiled_in)
            names.append("")
        for entry in header["file_entry"]:
            folder = directories[entry.dir_index] if entry.dir_index < len(directories) else ""
            name = entry.name.decode(errors="replace")
            if not name.startswith("/"):
                name = f"{folder}/{name}" if folder else name
                if not name.startswith("/") and compiled_in:
                    name = f"{compiled_in}/{name}"
            names.append(name)
        return names

    def _lines(self, unit: Any) -> list[_Row]:
        rows = self._rows.get(unit.cu_offset)
        if rows is None:
            names = self._file_names(unit)
            rows = []
            program = self._dwarf.line_program_for_CU(unit)
            for entry in program.get_entries() if program is not None else ():
                state = entry.state
                if state is None:
                    continue
                name = names[state.file] if state.file < len(names) else ""
                line = 0 if state.end_sequence else state.line
                rows.append(_Row(state.address, name, line, state.column, bool(state.is_stmt)))
            # At one address the row that ends a sequence comes before the one that begins the next.
            rows.sort(key=lambda row: (row.address, row.line != 0))
            self._rows[unit.cu_offset] = rows
        return rows

    # ---- functions of an address

    def frames(self, address: int) -> list[Place]:
        """The functions of an address: inlined ones first, the function itself last; empty when it is not known."""
        with self._reading():
            unit = self._unit_at(address)
            chain = self._chain(unit, address) if unit is not None else []
            return self._places(unit, chain, address) if chain else []

    def _places(self, unit: Any, chain: list[Any], address: int) -> list[Place]:
        names = self._file_names(unit)
        file, line = self._line_in(unit, address)
        found = []
        for die in reversed(chain):
            found.append(Place(_linkage_name(die) or _name(die), file, line))
            number = _number(die, "DW_AT_call_file")
            file, line = names[number] if number < len(names) else "", _number(die, "DW_AT_call_line")
        return found

    def _chain(self, unit: Any, address: int) -> list[Any]:
        """The function that covers an address and the inlined functions inside it, outermost first."""
        function = self._covering(unit, address)
        if function is None:
            return []
        chain, inner = [function], function
        while True:
            inner = next((child for child in inner.iter_children() if self._covers(child, address)), None)
            if inner is None:
                return chain
            if inner.tag == "DW_TAG_inlined_subroutine":
                chain.append(inner)

    def _covers(self, die: Any, address: int) -> bool:
        if die.tag not in ("DW_TAG_inlined_subroutine", "DW_TAG_lexical_block"):
            return False
        return any(low <= address < high for low, high in self._ranges(die))

    def _ranges(self, die: Any) -> list[tuple[int, int]]:
        if "DW_AT_ranges" not in die.attributes:
            low, high = _low_high(die)
            return [(low, high)] if high > low else []
        base = _number(die.cu.get_top_DIE(), "DW_AT_low_pc")
        lists: Any = self._dwarf.range_lists()
        found = []
        for entry in lists.get_range_list_at_offset(die.attributes["DW_AT_ranges"].value, die.cu):
            if hasattr(entry, "base_address"):
                base = entry.base_address
                continue
            start = 0 if getattr(entry, "is_absolute", False) else base
            found.append((start + entry.begin_offset, start + entry.end_offset))
        return found

    def _functions_of(self, unit: Any) -> list[tuple[int, int, Any]]:
        """Start, end and DIE of the functions with code in a unit, in order of address."""
        known = self._functions.get(unit.cu_offset)
        if known is None:
            known = []
            waiting = [unit.get_top_DIE()]
            while waiting:
                for die in waiting.pop().iter_children():
                    if die.tag == "DW_TAG_subprogram":
                        known += [(low, high, die) for low, high in self._ranges(die)]
                    elif die.tag in ("DW_TAG_namespace", "DW_TAG_class_type", "DW_TAG_structure_type"):
                        waiting.append(die)
            known.sort(key=lambda row: row[0])
            self._functions[unit.cu_offset] = known
        return known

    def _covering(self, unit: Any, address: int) -> Any | None:
        rows = self._functions_of(unit)
        at = bisect_right(rows, address, key=lambda row: row[0]) - 1
        return rows[at][2] if at >= 0 and address < rows[at][1] else None

    def _function_start(self, unit: Any, address: int) -> int:
        rows = self._functions_of(unit)
        at = bisect_right(rows, address, key=lambda row: row[0]) - 1
        return int(rows[at][0]) if at >= 0 and address < rows[at][1] else address

    def _function_at(self, address: int) -> Any | None:
        unit = self._unit_at(address)
        found = self._covering(unit, address) if unit is not None else None
        return found if found is not None and address in {low for low, _ in self._ranges(found)} else None

    # ---- units

    @cached_property
    def _aranges(self) -> Any:
        return self._dwarf.get_aranges()

    def _unit_at(self, address: int) -> Any | None:
        """The compilation unit of an address: by ``.debug_aranges``, else by asking each unit."""
        offset = self._aranges.cu_offset_at_addr(address) if self._aranges is not None else None
        if offset is not None:
            return self._dwarf.get_CU_at(offset)
        return next((unit for low, high, unit in self._unit_ranges if low <= address < high), None)

    @cached_property
    def _unit_ranges(self) -> list[tuple[int, int, Any]]:
        return [(low, high, unit) for unit in self._dwarf.iter_CUs() for low, high in self._ranges(unit.get_top_DIE())]


def _low_high(die: Any) -> tuple[int, int]:
    """``DW_AT_low_pc`` and the end that ``DW_AT_high_pc`` gives (an address, or a distance since DWARF 4)."""
    low, high = die.attributes.get("DW_AT_low_pc"), die.attributes.get("DW_AT_high_pc")
    if low is None:
        return 0, 0
    if high is None:
        return low.value, low.value
    return low.value, high.value if high.form == "DW_FORM_addr" else low.value + high.value


def _described(die: Any, attribute: str) -> Any:
    """The DIE that carries an attribute: itself, or what it is an instance or the definition of."""
    while attribute not in die.attributes:
        link = next((key for key in ("DW_AT_abstract_origin", "DW_AT_specification") if key in die.attributes), None)
        if link is None:
            return die
        die = die.get_DIE_from_attribute(link)
    return die


def _name(die: Any) -> str:
    found = _described(die, "DW_AT_name").attributes.get("DW_AT_name")
    return found.value.decode(errors="replace") if found is not None else ""


def _linkage_name(die: Any) -> str:
    found = _described(die, "DW_AT_linkage_name").attributes.get("DW_AT_linkage_name")
    return found.value.decode(errors="replace") if found is not None else ""


def _number(die: Any, attribute: str) -> int:
    found = die.attributes.get(attribute)
    return int(found.value) if found is not None and isinstance(found.value, int) else 0


def _same_file(path: str, wanted: str) -> bool:
    return path == wanted or path.endswith(f"/{wanted.removeprefix('./')}")


def _has_floats(kind: Type) -> bool:
    """Whether a small struct has a member that is passed in a vector register (floats are bytes here)."""
    if isinstance(kind, Struct):
        return any(_has_floats(field.type) for field in kind.fields)
    return isinstance(kind, Array) and not isinstance(kind.element, Pointer | Struct)
