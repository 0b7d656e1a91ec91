"""Units of DWARF and the entries in them; a unit is read when one of its entries is asked for.

Entries are looked at where they lie: going over the children of one skips what they contain by the sizes of the
abbreviations, and attributes are decoded for the entries that are looked into.

Source: the DWARF 5 standard, 7.5.1 (headers), 2.3 (entries), 7.3.2 (split units).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from pytrace.runtime.dwarf_constants import (
    ADDRESS_INDEXES,
    LOCAL_REFERENCES,
    STRING_INDEXES,
    SUPPLEMENT_REFERENCES,
    At,
    Form,
    UnitKind,
)
from pytrace.runtime.dwarf_forms import Abbreviation, Abbreviations, DwarfError, Forms, forms, uleb128
from pytrace.runtime.dwarf_sections import Sections

_SIBLING = int(At.SIBLING)


class Die:
    """A debugging information entry; *offset* counts from the start of its unit."""

    __slots__ = ("_body", "_end", "_values", "offset", "row", "tag", "unit")

    def __init__(self, unit: Unit, offset: int, row: Abbreviation, body: int) -> None:
        self.unit = unit
        self.offset = offset
        self.row = row
        self.tag = row.tag
        self._body = body
        self._values: dict[int, tuple[int, Any]] | None = None
        self._end = body + row.size if row.size >= 0 else -1

    @property
    def values(self) -> dict[int, tuple[int, Any]]:
        """Form and stored value of each attribute."""
        if self._values is None:
            self._values, self._end = self.unit.decode(self.row, self._body)
        return self._values

    @property
    def end(self) -> int:
        """Where the attributes end; the first child, if there is one, begins there."""
        if self._end < 0:
            self._end = self.unit.skip(self.row, self._body)
        return self._end

    def __contains__(self, attribute: int) -> bool:
        return attribute in self.values

    def children(self) -> Iterator[Die]:
        """The entries directly below this one."""
        return self.unit.children(self)

    def number(self, attribute: int, default: int = 0) -> int:
        """A constant; *default* where the attribute is missing or not a constant (but an expression or a reference)."""
        form, value = self.values.get(attribute, (0, None))
        return value if isinstance(value, int) and form not in LOCAL_REFERENCES else default

    def text(self, attribute: int) -> str:
        """A string, empty where there is none."""
        found = self.values.get(attribute)
        return self.unit.string(*found).decode(errors="replace") if found is not None else ""

    def address(self, attribute: int) -> int | None:
        """An address; None where the attribute is missing or not an address."""
        form, value = self.values.get(attribute, (0, 0))
        if form == Form.ADDR:
            return int(value)
        return self.unit.address(value) if form in ADDRESS_INDEXES else None

    def follow(self, attribute: int) -> Die:
        """The entry that an attribute refers to.

        Raises:
            DwarfError: it does not refer to one, or to none that is there.
        """
        form, value = self.values.get(attribute, (0, 0))
        if form in LOCAL_REFERENCES:
            return self.unit.die(value)
        if form == Form.REF_ADDR:
            return self.unit.table.die(value)
        if form == Form.REF_SIG8:
            return self.unit.table.type_die(value)
        if form in SUPPLEMENT_REFERENCES:
            return self.unit.table.supplement.die(value)
        raise DwarfError(f"attribute {attribute:#x} does not refer to an entry")


class Unit:
    """A unit of ``.debug_info`` or (before DWARF 5) ``.debug_types``; *start* is its place in the section.

    A unit of a split file has its *skeleton*: the unit in the binary that knows addresses.
    """

    def __init__(self, table: UnitTable, section: str, start: int) -> None:
        self.table = table
        self.start = start
        self.skeleton: Unit | None = None
        self._section = section
        view = table.sections.section(section)
        length, at, self.offset_size = initial_length(view, start)
        self.size = at - start + length
        if start + self.size > len(view) or length < 7:
            raise DwarfError(f"the unit at {start:#x} of .debug_{section} is cut short")
        self.dwo_id: int | None = None
        self.signature: int | None = None
        self.type_offset = 0
        self._read_header(bytes(view[at : at + 32]), at - start)
        self._forms: Forms = forms(self.version, self.address_size, self.offset_size)
        self._ends: dict[int, int] = {}

    def _read_header(self, data: bytes, before: int) -> None:
        offset = "I" if self.offset_size == 4 else "Q"
        self.version = int.from_bytes(data[:2], "little")
        if self.version >= 5:
            layout = struct.Struct(f"<HBB{offset}")
            _, kind, self.address_size, self.abbreviations_at = layout.unpack_from(data)
        else:
            layout = struct.Struct(f"<H{offset}B")
            _, self.abbreviations_at, self.address_size = layout.unpack_from(data)
            kind = UnitKind.TYPE if self._section == "types" else UnitKind.COMPILE
        if not 2 <= self.version <= 5 or self.address_size not in (4, 8):
            raise DwarfError(f"DWARF version {self.version} with {8 * self.address_size}-bit addresses is unknown")
        self.kind = kind
        at = layout.size
        if kind in (UnitKind.SKELETON, UnitKind.SPLIT_COMPILE):
            (self.dwo_id,) = struct.unpack_from("<Q", data, at)
            at += 8
        elif kind in (UnitKind.TYPE, UnitKind.SPLIT_TYPE):
            self.signature, self.type_offset = struct.unpack_from(f"<Q{offset}", data, at)
            at += 8 + self.offset_size
        self.first = before + at

    @cached_property
    def data(self) -> bytes:
        """The bytes of the whole unit."""
        return bytes(self.table.sections.section(self._section)[self.start : self.start + self.size])

    @cached_property
    def _abbreviations(self) -> Abbreviations:
        return self.table.abbreviations(self.abbreviations_at, self._forms)

    # ---- entries

    @cached_property
    def top(self) -> Die:
        """The entry of the unit itself."""
        return self.die(self.first)

    def die(self, offset: int) -> Die:
        """The entry at an offset from the unit's start."""
        if not self.first <= offset < self.size:
            raise DwarfError(f"no entry of the unit at {self.start:#x} is at {offset:#x}")
        code, body = uleb128(self.data, offset)
        if not code:
            raise DwarfError(f"a reference to {offset:#x} meets the end of a list")
        return Die(self, offset, self._abbreviations.row(code), body)

    def children(self, parent: Die) -> Iterator[Die]:
        """The entries directly below one."""
        if not parent.row.children:
            return
        data, rows, at = self.data, self._abbreviations.rows, parent.end
        while True:
            code, body = data[at], at + 1
            if code >= 0x80:
                code, body = uleb128(data, at)
            if not code:
                self._ends[parent.offset] = body
                return
            child = Die(self, at, rows.get(code) or self._abbreviations.row(code), body)
            yield child
            at = self._behind(child) if child.row.children else child.end

    def _behind(self, die: Die) -> int:
        """Where the entry behind a DIE with children, and all below them, begins."""
        known = self._ends.get(die.offset)
        if known is None:
            if _SIBLING in die:
                known = die.values[_SIBLING][1]
                if not isinstance(known, int) or not die.offset < known <= self.size:
                    raise DwarfError(f"the entry at {die.offset:#x} has a sibling outside its unit")
            else:
                known = self._past(die.end)
            self._ends[die.offset] = known
        return known

    def _past(self, at: int) -> int:
        """The end of a list of entries with all below them; *at* is its first entry."""
        data, rows, ends = self.data, self._abbreviations.rows, self._ends
        opened: list[int] = []
        while True:
            code, body = data[at], at + 1
            if code >= 0x80:
                code, body = uleb128(data, at)
            if not code:
                if not opened:
                    return body
                ends[opened.pop()] = at = body
                continue
            row = rows.get(code) or self._abbreviations.row(code)
            if row.children:
                if row.sibling >= 0:
                    place = body + row.sibling
                    # Siblings lie further on: a damaged one must not turn this into a circle.
                    at = max(int.from_bytes(data[place : place + 4], "little"), body)
                    continue
                opened.append(at)
            at = body + row.size if row.size >= 0 else self.skip(row, body)

    def skip(self, row: Abbreviation, at: int) -> int:
        """Where the attributes of an entry end, which begin at *at*."""
        data, sizes, readers = self.data, self._forms.sizes, self._forms.readers
        for _, form, _ in row.specs:
            size = sizes.get(form)
            if size is not None:
                at += size
            elif form == Form.INDIRECT:
                _, _, at = self._indirect(at)
            elif form in readers:
                _, at = readers[form](data, at)
            else:
                raise DwarfError(f"form {form:#x} of an attribute is unknown")
        return at

    def decode(self, row: Abbreviation, at: int) -> tuple[dict[int, tuple[int, Any]], int]:
        """Form and stored value of the attributes that begin at *at*, and where they end."""
        data, readers = self.data, self._forms.readers
        found: dict[int, tuple[int, Any]] = {}
        for attribute, form, constant in row.specs:
            reader = readers.get(form)
            if reader is not None:
                value, at = reader(data, at)
            elif form == Form.IMPLICIT_CONST:
                value = constant
            elif form == Form.INDIRECT:
                form, value, at = self._indirect(at)
            else:
                raise DwarfError(f"form {form:#x} of an attribute is unknown")
            found[attribute] = form, value
        return found, at

    def _indirect(self, at: int) -> tuple[int, Any, int]:
        form, at = uleb128(self.data, at)
        if form not in self._forms.readers:
            raise DwarfError(f"form {form:#x} of an attribute is unknown")
        return form, *self._forms.readers[form](self.data, at)

    # ---- what values refer to

    @property
    def label(self) -> str:
        """What tells the unit from all others of its program."""
        return f"{self.table.sections.path}:{self.dwo_id or self.signature or self.start:x}"

    @property
    def split(self) -> bool:
        """Whether the unit is in a split file."""
        return self.table.split

    def string(self, form: int, value: Any) -> bytes:
        """The text that a form and its stored value mean; empty where it is no string."""
        if form == Form.STRING:
            return bytes(value)
        if form == Form.STRP:
            return self.table.string("str", value)
        if form in STRING_INDEXES:
            table = self.table.sections.section("str_offsets")
            at = self._strings_base + value * self.offset_size
            return self.table.string("str", _entry(table, at, self.offset_size, "a string"))
        if form == Form.LINE_STRP:
            return self.table.string("line_str", value)
        if form in (Form.STRP_SUP, Form.GNU_STRP_ALT):
            return self.table.supplement.string("str", value)
        return b""

    @cached_property
    def _strings_base(self) -> int:
        # In a split file a unit's part begins with its header since DWARF 5 and has none before.
        header = 0 if self.version < 5 else 8 if self.offset_size == 4 else 16
        return self.top.number(At.STR_OFFSETS_BASE, header)

    def address(self, index: int) -> int:
        """An address by its number in ``.debug_addr``, which only the binary has."""
        owner = self.skeleton or self
        table = owner.table.sections.section("addr")
        return _entry(table, owner.address_base + index * self.address_size, self.address_size, "an address")

    @cached_property
    def address_base(self) -> int:
        """Where the unit's part of ``.debug_addr`` begins."""
        return self.top.number(At.ADDR_BASE, self.top.number(At.GNU_ADDR_BASE))

    @cached_property
    def low(self) -> int:
        """The address that lists of ranges and locations count from."""
        return (self.skeleton or self).top.address(At.LOW_PC) or 0


class UnitTable:
    """The units of one file, or those of a package that belong together.

    *supplement* finds the table of the supplementary file, *types* a type unit that is not in this table by its
    signature (in packages).
    """

    def __init__(
        self,
        sections: Sections,
        *,
        split: bool = False,
        supplement: Callable[[], UnitTable] | None = None,
        types: Callable[[int], Unit | None] | None = None,
    ) -> None:
        self.sections = sections
        self.split = split
        self._find_supplement = supplement
        self._find_type = types
        self._units: dict[int, Unit] = {}
        self._strings: dict[tuple[str, int], bytes] = {}
        self._abbreviations: dict[tuple[int, int], Abbreviations] = {}

    def unit(self, start: int) -> Unit:
        """The unit that begins at an offset of ``.debug_info``."""
        known = self._units.get(start)
        if known is None:
            known = self._units[start] = Unit(self, "info", start)
        return known

    def __iter__(self) -> Iterator[Unit]:
        """All units of ``.debug_info``, in order."""
        start, end = 0, len(self.sections.section("info"))
        while start < end:
            unit = self.unit(start)
            yield unit
            start += unit.size

    @cached_property
    def _starts(self) -> list[int]:
        return [unit.start for unit in self]

    def die(self, offset: int) -> Die:
        """The entry at an offset of ``.debug_info``."""
        at = bisect_right(self._starts, offset) - 1
        if at < 0:
            raise DwarfError(f"no unit has the entry at {offset:#x}")
        return self.unit(self._starts[at]).die(offset - self._starts[at])

    def type_unit(self, signature: int) -> Unit | None:
        """The type unit with a signature; None when this table does not have it."""
        return self._types.get(signature)

    def type_die(self, signature: int) -> Die:
        """The type that a type unit describes."""
        unit = self.type_unit(signature)
        if unit is None and self._find_type is not None:
            unit = self._find_type(signature)
        if unit is None:
            raise DwarfError(f"there is no type unit {signature:016x}")
        return unit.die(unit.type_offset)

    @cached_property
    def _types(self) -> dict[int, Unit]:
        found = {unit.signature: unit for unit in self if unit.signature is not None}
        start, end = 0, len(self.sections.section("types"))
        while start < end:
            unit = Unit(self, "types", start)
            if unit.signature is not None:
                found[unit.signature] = unit
            start += unit.size
        return found

    @cached_property
    def supplement(self) -> UnitTable:
        """The units of the supplementary file (``dwz -m``), which several binaries share."""
        if self._find_supplement is None:
            raise DwarfError("it refers to a supplementary file and does not name one")
        return self._find_supplement()

    def abbreviations(self, offset: int, known: Forms) -> Abbreviations:
        """The table of abbreviations at an offset, for units with the given forms."""
        key = offset, id(known)
        if key not in self._abbreviations:
            self._abbreviations[key] = Abbreviations(self.sections.section("abbrev"), offset, known)
        return self._abbreviations[key]

    def string(self, section: str, offset: int) -> bytes:
        """The string at an offset of ``.debug_str`` or ``.debug_line_str``."""
        key = section, offset
        known = self._strings.get(key)
        if known is None:
            known = self._strings[key] = self._string(section, offset)
        return known

    def _string(self, section: str, offset: int) -> bytes:
        view = self.sections.section(section)
        if offset >= len(view):
            raise DwarfError(f"a string lies outside .debug_{section}")
        size = 64
        while True:
            # Views cannot be searched; names are mostly short.
            piece = bytes(view[offset : offset + size])
            end = piece.find(b"\0")
            if end >= 0 or offset + size >= len(view):
                return piece[:end] if end >= 0 else piece
            size *= 4


def initial_length(view: memoryview, at: int) -> tuple[int, int, int]:
    """Length, position behind it, and size of offsets of what begins with a length (the standard's 7.4)."""
    (length,) = struct.unpack_from("<I", view, at)
    if length != 0xFFFFFFFF:
        return length, at + 4, 4
    (length,) = struct.unpack_from("<Q", view, at + 4)
    return length, at + 12, 8


def _entry(table: memoryview, at: int, size: int, what: str) -> int:
    if at + size > len(table):
        raise DwarfError(f"{what} lies outside its table")
    return int.from_bytes(table[at : at + size], "little")
