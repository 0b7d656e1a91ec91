"""Source lines and functions of addresses, also inlined ones: line tables, and the entries that stacks lead to.

pyelftools reads the headers of line tables. It would make several objects of each instruction of a line program, and
one of each attribute of an entry, some tens of microseconds each, and a library has millions. Here line programs run in
one loop over their bytes, and rows are columns of integers; code ranges, names and call sites are read from the bytes
of a unit, less usual forms by pyelftools. Both go in steps, so that whoever waits for something else may look at it in
between.

Source: the DWARF 5 standard, 2.17, 6.2.5, 7.5.6 and 7.25; DWARF 4, 2.17.3.
"""

from __future__ import annotations

import operator
import re
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import cached_property
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from elftools.common.exceptions import DWARFError

from pytrace.runtime.binaries.dwarf_types import described
from pytrace.runtime.binaries.dwarf_units import ranges
from pytrace.runtime.binaries.elf_file import signed, unsigned
from pytrace.runtime.binaries.elftools_overrides import MODERN

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from elftools.construct import Container as Header

    from pytrace.runtime.binaries.dwarf_units import Die, Shape, Step, Unit


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


_WANTED = frozenset((
    "DW_AT_low_pc", "DW_AT_high_pc", "DW_AT_ranges", "DW_AT_abstract_origin", "DW_AT_specification", "DW_AT_name",
    "DW_AT_linkage_name", "DW_AT_call_file", "DW_AT_call_line",
))  # fmt: skip
_FIXED = {
    "DW_FORM_data1": 1, "DW_FORM_data2": 2, "DW_FORM_data4": 4, "DW_FORM_data8": 8,
    "DW_FORM_ref1": 1, "DW_FORM_ref2": 2, "DW_FORM_ref4": 4, "DW_FORM_ref8": 8,
    "DW_FORM_addrx1": 1, "DW_FORM_addrx2": 2, "DW_FORM_addrx3": 3, "DW_FORM_addrx4": 4,
}  # fmt: skip
_NUMBERS = ("DW_FORM_udata", "DW_FORM_ref_udata", "DW_FORM_addrx", "DW_FORM_GNU_addr_index")
_LOCAL = frozenset(("DW_FORM_ref1", "DW_FORM_ref2", "DW_FORM_ref4", "DW_FORM_ref8", "DW_FORM_ref_udata"))
_INDEXED = frozenset(("DW_FORM_addrx", "DW_FORM_addrx1", "DW_FORM_addrx2", "DW_FORM_addrx3", "DW_FORM_addrx4"))
_TABLES = {"DW_FORM_strp": "str", "DW_FORM_line_strp": "line_str"}
_MOST_LINKS = 16
"""Entries that describe each other, at most: an instance, its abstract form, the declaration of that."""
_TEXT = re.compile(rb"[^\0]*")
_RUST, _CPP = 0x1C, frozenset((0x04, 0x1A, 0x21, 0x2B, 0x3A))
"""``DW_LANG_Rust``; ``DW_LANG_C_plus_plus`` and its later editions."""
_CLOSURES = ("NC", "closure$")
"""In linkage names of Rust with closures: of the newer mangling, and of the older one."""
_COROUTINE = re.compile(r"\{(?:async_|gen_|coroutine|generator)")

_Read = Callable[[int], tuple[int, int]]
"""Reads the value at a position; returns it and the position after it."""


class Value(NamedTuple):
    """An attribute as it is stored; *form* is empty for what pyelftools is to read."""

    form: str
    number: int


class _Stored(NamedTuple):
    """How a wanted attribute is read: *before* it lie others; without *read* the value is that of all entries."""

    before: tuple[Step, ...]
    name: str
    form: str
    read: _Read | None
    value: int


class Entries:
    """The entries of one unit (that of the split file, for a skeleton)."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.extents = unit.extents
        self._abbreviations = unit.get_abbrev_table()
        self._data = unit.section.data
        self._plans: dict[int, tuple[_Stored, ...]] = {}
        self._names: dict[int, str] = {}
        self._written: dict[tuple[Unit, int], str] = {}
        self._address_size = unit.structs.address_size
        offset = self._fixed(unit.structs.dwarf_format // 8)
        self._readers: dict[str, _Read] = {name: self._fixed(size) for name, size in _FIXED.items()}
        self._readers |= dict.fromkeys(_NUMBERS, lambda at: unsigned(self._data, at))
        self._readers |= dict.fromkeys(("DW_FORM_sec_offset", *_TABLES), offset)
        self._readers["DW_FORM_addr"] = self._fixed(self._address_size)

    def _fixed(self, size: int) -> _Read:
        data, convert = self._data, int.from_bytes

        def read(at: int) -> tuple[int, int]:
            end = at + size
            return convert(data[at:end], "little"), end

        return read

    # ---- attributes

    def values(self, at: int) -> dict[str, Value]:
        """The attributes of the entry at a place that stacks are about."""
        code, place = unsigned(self._data, at)
        plan = self._plans.get(code)
        if plan is None:
            plan = self._plans[code] = self._plan(code)
        values: dict[str, Value] = {}
        for before, name, form, read, value in plan:
            for step in before:
                place = place + step if isinstance(step, int) else step(place)
            if read is not None:
                value, place = read(place)
            values[name] = Value(form, value)
        return values

    def _plan(self, code: int) -> tuple[_Stored, ...]:
        rows: list[_Stored] = []
        before: list[Step] = []
        for spec in self._abbreviations.get_abbrev(code)["attr_spec"]:
            read = self._readers.get(spec.form)
            if spec.name in _WANTED and read is not None:
                rows.append(_Stored(tuple(before), spec.name, MODERN.get(spec.form, spec.form), read, 0))
                before = []
                continue
            if spec.name in _WANTED:
                known = spec.form == "DW_FORM_implicit_const"
                rows.append(_Stored(tuple(before), spec.name, spec.form if known else "", None, spec.value or 0))
                before = []
            before.append(self.extents.step(spec.form))
        return tuple(rows)

    def number(self, at: int, values: dict[str, Value], name: str, default: int = 0) -> int:
        """A constant among the values of the entry at a place."""
        value = values.get(name)
        if value is None:
            return default
        return value.number if value.form else self.unit.entry(at).number(name, default)

    # ---- names

    def function(self, at: int) -> str:
        """The linkage name of a function or of an instance of one, else its name."""
        known = self._names.get(at)
        if known is None:
            known = self._names[at] = self._function(at)
        return known

    def _function(self, at: int) -> str:
        start, name = at, ""
        for _ in range(_MOST_LINKS):
            values = self.values(at)
            linkage = self._text(at, values, "DW_AT_linkage_name")
            if linkage:
                return linkage
            name = name or self._text(at, values, "DW_AT_name")
            link = values.get("DW_AT_abstract_origin") or values.get("DW_AT_specification")
            if link is None:
                return self._qualified(self.unit.entry(at), name)
            if link.form not in _LOCAL:
                # It goes on in another unit.
                die = self.unit.entry(start)
                linkage = described(die, "DW_AT_linkage_name").text("DW_AT_linkage_name")
                named = described(die, "DW_AT_name")
                return linkage or self._qualified(described(named, "DW_AT_declaration"), named.text("DW_AT_name"))
            at = self.unit.cu_offset + link.number
        raise DWARFError("entries refer to each other in a cycle")

    @cached_property
    def _language(self) -> int:
        return self.unit.top.number("DW_AT_language")

    def _qualified(self, declared: Die, name: str) -> str:
        """A name; in C++ with those around it, as GCC gives functions that are local to a file no linkage name."""
        if self._language not in _CPP or not name:
            return name
        unnamed = {"DW_TAG_namespace": "(anonymous namespace)"}
        if name.startswith("operator()"):
            unnamed |= dict.fromkeys(("DW_TAG_structure_type", "DW_TAG_class_type"), "{lambda}")
        around = (die.text("DW_AT_name") or unnamed.get(str(die.tag), "") for die in _around(declared))
        return "::".join([*filter(None, around), name])

    def written(self, at: int) -> str:
        """The name of a function of Rust with those around it, as DWARF has it, if that tells bodies of async functions
        from closures (``app::handle::{async_fn#0}``); else empty.
        """
        if self._language != _RUST or not any(mark in self.function(at) for mark in _CLOSURES):
            return ""
        named = described(self.unit.entry(at), "DW_AT_name")
        text = self._written.get((named.cu, named.offset))
        if text is None:
            names = [outer.text("DW_AT_name") for outer in _around(described(named, "DW_AT_declaration"))]
            text = "::".join([*filter(None, names), named.text("DW_AT_name")])
            text = self._written[named.cu, named.offset] = text if _COROUTINE.search(text) else ""
        return text

    def _text(self, at: int, values: dict[str, Value], name: str) -> str:
        value = values.get(name)
        if value is None:
            return ""
        table = _TABLES.get(value.form)
        if table is None:
            return self.unit.entry(at).text(name)
        data = self.unit.dwarfinfo.section(table).data
        match = _TEXT.match(data, value.number) if value.number < len(data) else None
        if match is None:
            raise DWARFError("a string is outside its table")
        return match[0].decode(errors="replace")

    # ---- where code is

    def code(self, at: int, values: dict[str, Value]) -> list[tuple[int, int]]:
        """Start and end of the code of the entry at a place; empty when it has none."""
        listed, low, high = (values.get(f"DW_AT_{name}") for name in ("ranges", "low_pc", "high_pc"))
        if listed is not None:
            if listed.form not in ("DW_FORM_sec_offset", "DW_FORM_data4", "DW_FORM_data8") or self.unit.skeleton:
                return ranges(self.unit.entry(at))
            return self._listed(listed.number) if self.unit.version >= 5 else self._pairs(listed.number)
        if low is None:
            return []
        start = self._address(low)
        if start is None or (high is not None and not high.form):
            return ranges(self.unit.entry(at))
        end = self._address(high) if high is not None else start
        if high is not None and end is None:
            end = start + high.number
        return [(start, end)] if end is not None and end > start else []

    def _address(self, value: Value) -> int | None:
        if value.form in _INDEXED:
            return self.unit.dwarfinfo.get_addr(self.unit, value.number)
        return value.number if value.form == "DW_FORM_addr" else None

    def _listed(self, at: int) -> list[tuple[int, int]]:
        """A list of ranges since DWARF 5."""
        data, number, base = self.unit.dwarfinfo.section("rnglists").data, unsigned, self.unit.low
        size = self._address_size
        code: list[tuple[int, int]] = []
        while kind := data[at]:
            at += 1
            if kind == 4:  # DW_RLE_offset_pair
                first, at = number(data, at)
                second, at = number(data, at)
                low, high = base + first, base + second
            elif kind == 5:  # DW_RLE_base_address
                base, at = int.from_bytes(data[at : at + size], "little"), at + size
                continue
            elif kind in (6, 7):  # DW_RLE_start_end, DW_RLE_start_length
                low, at = int.from_bytes(data[at : at + size], "little"), at + size
                if kind == 6:
                    high, at = int.from_bytes(data[at : at + size], "little"), at + size
                else:
                    length, at = number(data, at)
                    high = low + length
            elif kind == 1:  # DW_RLE_base_addressx
                first, at = number(data, at)
                base = self.unit.dwarfinfo.get_addr(self.unit, first)
                continue
            elif kind in (2, 3):  # DW_RLE_startx_endx, DW_RLE_startx_length
                first, at = number(data, at)
                second, at = number(data, at)
                low = self.unit.dwarfinfo.get_addr(self.unit, first)
                high = self.unit.dwarfinfo.get_addr(self.unit, second) if kind == 2 else low + second
            else:
                raise DWARFError(f"an entry of a list of ranges has the unknown kind {kind}")
            if high > low:
                code.append((low, high))
        return code

    def _pairs(self, at: int) -> list[tuple[int, int]]:
        """A list of ranges before DWARF 5."""
        pair = struct.Struct("<QQ" if self._address_size == 8 else "<II")
        data, base = self.unit.dwarfinfo.section("ranges").data, self.unit.low
        most = (1 << 8 * self._address_size) - 1
        code: list[tuple[int, int]] = []
        while True:
            first, second = pair.unpack_from(data, at)
            at += pair.size
            if first == most:
                base = second
            elif not first and not second:
                return code
            elif second > first:
                code.append((base + first, base + second))


def _around(die: Die) -> list[Die]:
    """The entries that an entry lies in, outermost first, without that of the unit."""
    extents, top = die.cu.extents, die.cu.top.offset
    outer, found = top, []
    while outer < die.offset:
        if outer != top:
            found.append(die.cu.entry(outer))
        shape, body = extents.shape(outer)
        if shape is None:
            break
        outer = extents.past(shape, body)
        while (end := extents.behind(outer)) <= die.offset:
            outer = end
    return found


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
