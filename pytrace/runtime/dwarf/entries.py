"""Attributes of entries read from the bytes of a unit, as stacks need them: code ranges, names, call sites.

pyelftools creates an object for each attribute, some tens of microseconds for an entry, and a stack may lead past
thousands of entries. Less usual forms are left to pyelftools.

Source: the DWARF 5 standard, 2.17, 7.5.6 and 7.25; DWARF 4, 2.17.3.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from elftools.common.exceptions import DWARFError

from pytrace.runtime.dwarf.elftools_overrides import MODERN
from pytrace.runtime.dwarf.lists import ranges
from pytrace.runtime.dwarf.value_types import described
from pytrace.runtime.elf.leb128 import unsigned

if TYPE_CHECKING:
    from pytrace.runtime.dwarf.forms import Step
    from pytrace.runtime.dwarf.units import Die, Unit

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
