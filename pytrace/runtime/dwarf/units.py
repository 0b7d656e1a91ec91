"""Units of DWARF and the entries in them: pyelftools' own, with what split units, packages and laziness need of them.

pyelftools 0.33 knows nothing of the files and packages of split units, of addresses and strings by number without
attributes that say where the tables begin, and of type units in ``.debug_info``. What is private of it is overridden in
`elftools_overrides`.

Source: the DWARF 5 standard, 7.3.2 (split units), 7.26 and 7.27 (tables); https://gcc.gnu.org/wiki/DebugFission.
"""

from __future__ import annotations

import struct
from functools import cached_property
from typing import TYPE_CHECKING, Any

from elftools.common.exceptions import DWARFError, ELFError
from elftools.construct import ConstructError, Container
from elftools.dwarf.die import DIE, AttributeValue
from elftools.dwarf.dwarf_expr import DWARFExprOp, DWARFExprParser
from elftools.dwarf.dwarfinfo import DwarfConfig
from elftools.dwarf.locationlists import LocationListsPair
from elftools.dwarf.ranges import RangeListsPair

from pytrace.runtime.dwarf.elftools_overrides import (
    MODERN,
    WIDE,
    Abbreviations,
    DeferredEntry,
    Structs,
    TableOfUnits,
    UnitOfEntries,
)
from pytrace.runtime.dwarf.forms import Extents, Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from elftools.dwarf.abbrevtable import AbbrevTable
    from elftools.dwarf.compileunit import CompileUnit
    from elftools.dwarf.typeunit import TypeUnit

    from pytrace.runtime.dwarf.sections import DebugSection, Sections

_ADDRESSES = frozenset(("DW_FORM_addr", "DW_FORM_addrx", *(f"DW_FORM_addrx{size}" for size in range(1, 5))))
_SUPPLEMENT_STRINGS = frozenset(("DW_FORM_strp_sup", "DW_FORM_GNU_strp_alt"))
_SUPPLEMENT_ENTRIES = frozenset(("DW_FORM_ref_sup4", "DW_FORM_ref_sup8", "DW_FORM_GNU_ref_alt"))
_SECTIONS = (
    "info", "aranges", "abbrev", "str", "loc", "ranges", "line", "addr", "str_offsets", "line_str", "loclists",
    "rnglists", "types",
)  # fmt: skip
_UNUSED = (
    "debug_frame_sec", "eh_frame_sec", "debug_pubtypes_sec", "debug_pubnames_sec", "debug_sup_sec",
    "gnu_debugaltlink_sec",
)  # fmt: skip


COMPLAINTS = (
    DWARFError, ELFError, ConstructError, LookupError, ValueError, TypeError, ArithmeticError, AssertionError,
    AttributeError, NotImplementedError, RecursionError, struct.error,
)  # fmt: skip
"""Exceptions of pyelftools for malformed data; references in a cycle end as a RecursionError."""


class MissingFileError(Exception):
    """A file that the debug information goes on in is not there; the message is for the user."""


def explained(error: BaseException) -> str:
    """One of :data:`COMPLAINTS` as a message; some have no words of their own."""
    return str(error) or type(error).__name__


class Die(DeferredEntry):
    """A debugging information entry."""

    cu: Unit
    dwarfinfo: UnitTable

    def value(self, name: str) -> int | bytes | list[int] | None:
        """The meaning of an attribute: a string for an offset in a table of strings; None where it is missing."""
        attribute = self.attributes.get(name)
        if attribute is None:
            return None
        form = MODERN.get(attribute.form, attribute.form)
        if form in _SUPPLEMENT_STRINGS:
            return self.dwarfinfo.supplement.get_string_from_table(attribute.raw_value)
        meaning: int | bytes | list[int] | None = self.translated(form, attribute.raw_value)
        return meaning

    def number(self, name: str, default: int = 0) -> int:
        """A constant; *default* where the attribute is missing or not a constant (but an expression or a reference)."""
        value = self.value(name)
        return value if isinstance(value, int) and "_ref" not in self.attributes[name].form else default

    def text(self, name: str) -> str:
        """A string, empty where there is none."""
        value = self.value(name)
        if value is None and name in self.attributes:
            raise DWARFError("a string is outside its table")
        return value.decode(errors="replace") if isinstance(value, bytes) else ""

    def address(self, name: str) -> int | None:
        """An address; None where the attribute is missing or not an address."""
        attribute = self.attributes.get(name)
        if attribute is None or MODERN.get(attribute.form, attribute.form) not in _ADDRESSES:
            return None
        value = self.value(name)
        return value if isinstance(value, int) else None

    def follow(self, name: str) -> Die:
        """The entry that an attribute refers to.

        Raises:
            DWARFError: it does not refer to one, or to none that is there.
        """
        attribute = self.attributes[name]
        if attribute.form in _SUPPLEMENT_ENTRIES:
            target = self.dwarfinfo.supplement.get_DIE_from_refaddr(attribute.raw_value)
        else:
            target = self.get_DIE_from_attribute(name)
        if target.is_null():
            raise DWARFError(f"a reference to {target.offset:#x} meets the end of a list")
        assert isinstance(target, Die)
        return target

    def __contains__(self, name: str) -> bool:
        return name in self.attributes

    def children(self, wanted: Callable[[Shape], bool] = lambda _: True) -> Iterator[Die]:
        """The entries directly below this one, or those of them that are wanted."""
        return self.cu.children(self, wanted)

    def operations(self, expression: bytes) -> list[DWARFExprOp]:
        """The operations of an expression; none where one of them is unknown."""
        try:
            return self.cu.expressions.parse_expr(expression)
        except KeyError:
            return []


class Unit(UnitOfEntries):
    """A unit of ``.debug_info`` or (before DWARF 5) ``.debug_types``.

    A unit of a split file has its *skeleton*: the unit in the binary that knows addresses.
    """

    dwarfinfo: UnitTable

    def __init__(self, table: UnitTable, section: DebugSection, found: CompileUnit | TypeUnit) -> None:
        structs = Structs(True, found.structs.dwarf_format, found.structs.address_size, found["version"])
        super().__init__(found.header, table, structs, found.cu_offset, found.cu_die_offset)
        if self.cu_offset + self.size > section.size:
            raise DWARFError(f"the unit at {self.cu_offset:#x} of {section.name} is truncated")
        self.skeleton: Unit | None = None
        self.version: int = found["version"]
        self.dwo_id: int | None = found.header.get("dwo_id")
        self.signature: int | None = found.header.get("type_signature", found.header.get("signature"))
        self.section = section
        self._dies: dict[int, Die] = {}

    # ---- entries

    @property
    def top(self) -> Die:
        """The entry of the unit itself."""
        return self.get_top_DIE()

    def get_top_DIE(self) -> Die:  # noqa: N802 - pyelftools' name
        """The entry of the unit itself."""
        top = self._dies.get(self.cu_die_offset)
        if top is None:
            top = self._dies[self.cu_die_offset] = Die(self, self.section.stream, self.cu_die_offset)
            for name, place in self._bases(top).items():
                top.attributes.setdefault(name, AttributeValue(name, "DW_FORM_sec_offset", place, place, 0, 0))
        return top

    def has_top_DIE(self) -> bool:  # noqa: N802 - pyelftools' name
        """True if the entry of the unit itself was read."""
        return self.cu_die_offset in self._dies

    def _bases(self, top: Die) -> dict[str, int]:
        """Where the unit's parts of tables begin, unless attributes say so.

        In a split file they begin with their header since DWARF 5 and have none before.
        """
        wide = self.dwarf_format() == 64
        strings, lists = (16, 20) if wide else (8, 12)
        return {
            "DW_AT_str_offsets_base": strings if self.version >= 5 else 0,
            "DW_AT_addr_base": top.number("DW_AT_GNU_addr_base"),
            "DW_AT_loclists_base": lists,
            "DW_AT_rnglists_base": lists,
        }

    def entry(self, offset: int) -> Die:
        """The entry at an offset of the section."""
        if offset == self.cu_die_offset:
            return self.top
        known = self._dies.get(offset)
        if known is None:
            known = self._dies[offset] = Die(self, self.section.stream, offset)
        return known

    @cached_property
    def extents(self) -> Extents:
        """Where the unit's entries end."""
        return Extents(self.structs, self.get_abbrev_table(), self.section, self.cu_offset)

    def children(self, parent: Die, wanted: Callable[[Shape], bool]) -> Iterator[Die]:
        """The entries directly below one that are wanted."""
        at = parent.offset + parent.size
        while parent.has_children:
            shape, _ = self.extents.shape(at)
            if shape is None:
                return
            if wanted(shape):
                yield self.entry(at)
            at = self.extents.behind(at)

    # ---- what values refer to

    @property
    def label(self) -> str:
        """A text that no other unit of the program has."""
        return f"{self.dwarfinfo.path}:{self.dwo_id or self.signature or self.cu_offset:x}"

    @cached_property
    def expressions(self) -> DWARFExprParser:
        """Reads expressions of this unit."""
        return DWARFExprParser(self.structs)

    @cached_property
    def low(self) -> int:
        """The address that lists of ranges and locations count from."""
        return (self.skeleton or self).top.address("DW_AT_low_pc") or 0


class UnitTable(TableOfUnits):
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
        named: dict[str, Any] = {f"debug_{name}_sec": sections.section(name) for name in _SECTIONS}
        super().__init__(DwarfConfig(True, "", sections.address_size), **named, **dict.fromkeys(_UNUSED))
        self.path = sections.path
        self.split = split
        self._sections = sections
        self._declarations: dict[bytes, Container] = {}
        self._abbreviations: dict[int, Abbreviations] = {}
        self._find_supplement = supplement
        self._find_type = types

    # ---- units

    def made_unit(self, section: str, found: CompileUnit | TypeUnit) -> Unit:
        return Unit(self, self._sections.section(section), found)

    def __iter__(self) -> Iterator[Unit]:
        """All units of ``.debug_info``, in order."""
        return (unit for unit in self.iter_CUs() if isinstance(unit, Unit))

    def unit(self, start: int) -> Unit:
        """The unit that begins at an offset of ``.debug_info``."""
        unit = self.get_CU_at(start)
        assert isinstance(unit, Unit)
        return unit

    def type_unit(self, signature: int) -> Unit | None:
        """The type unit with a signature; None when this table does not have it."""
        return self._types.get(signature)

    @cached_property
    def _types(self) -> dict[int, Unit]:
        units = [*self.iter_CUs(), *self.iter_TUs()]
        return {unit.signature: unit for unit in units if isinstance(unit, Unit) and unit.signature is not None}

    def get_DIE_by_sig8(self, sig8: int) -> DIE:  # noqa: N802 - pyelftools' name
        """The type that a type unit describes."""
        unit = self.type_unit(sig8)
        if unit is None and self._find_type is not None:
            unit = self._find_type(sig8)
        if unit is None:
            raise DWARFError(f"there is no type unit {sig8:016x}")
        return unit.get_DIE_from_refaddr(unit.cu_offset + unit["type_offset"])

    # ---- tables

    @cached_property
    def supplement(self) -> UnitTable:
        """The units of the supplementary file (``dwz -m``), which several binaries share."""
        if self._find_supplement is None:
            raise DWARFError("it refers to a supplementary file and does not name one")
        return self._find_supplement()

    def get_abbrev_table(self, offset: int) -> AbbrevTable:
        """The table of abbreviations at an offset."""
        known = self._abbreviations.get(offset)
        if known is None:
            section = self._sections.section("abbrev")
            if offset >= section.size:
                raise DWARFError(f"there are no abbreviations at {offset:#x}")
            known = Abbreviations(self.structs, section.data, offset, self._declarations)
            self._abbreviations[offset] = known
        return known

    def section(self, name: str) -> DebugSection:
        """``.debug_NAME``, as far as it belongs to these units."""
        return self._sections.section(name)

    def get_addr(self, cu: CompileUnit | TypeUnit, addr_index: int) -> int:
        """An address by its number in ``.debug_addr``, which only the binary has."""
        if isinstance(cu, Unit) and cu.skeleton is not None:
            return cu.skeleton.dwarfinfo.get_addr(cu.skeleton, addr_index)
        return super().get_addr(cu, addr_index)

    @cached_property
    def code(self) -> list[tuple[int, int, int]]:
        """Start, end and unit of pieces of code, in order, from ``.debug_aranges``."""
        data, at = self._sections.section("aranges").data, 0
        code: list[tuple[int, int, int]] = []
        while at + 12 <= len(data):
            # pyelftools 0.33 takes all sets for such of the 32-bit format, and pads from the start of the first one.
            wide = data[at : at + 4] == WIDE
            layout, before = ("<4xQ2xQBB", 12) if wide else ("<I2xIBB", 4)
            size, unit, address_size, segment_size = struct.unpack_from(layout, data, at)
            pair = {8: "<QQ", 4: "<II"}.get(address_size)
            if pair is None or segment_size:
                raise DWARFError(f"the addresses in .debug_aranges have {address_size} + {segment_size} bytes")
            # Pairs are aligned as pairs, counted from the start of the set.
            width = 2 * address_size
            first = (struct.calcsize(layout) + width - 1) // width * width
            rows = data[at + first : at + before + size]
            pairs = struct.iter_unpack(pair, rows[: len(rows) // width * width])
            code += [(low, low + length, unit) for low, length in pairs if length]
            at += size + before
        code.sort()
        return code

    @cached_property
    def ranges(self) -> RangeListsPair:
        """Lists of ranges, of any version."""
        lists = self.range_lists()
        assert isinstance(lists, RangeListsPair)
        return lists

    @cached_property
    def locations(self) -> LocationListsPair:
        """Lists of locations, of any version."""
        lists = self.location_lists()
        assert isinstance(lists, LocationListsPair)
        return lists
