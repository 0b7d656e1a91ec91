"""Where code and values are: address ranges and locations of entries, from pyelftools' lists.

Source: the DWARF 5 standard, 7.28 and 7.29; DWARF 4, 2.6.2 and 2.17.3; for ``.debug_loc.dwo`` before DWARF 5
https://gcc.gnu.org/wiki/DebugFission.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from elftools.common.construct_utils import ULEB128, RepeatUntilExcluding, StreamOffset
from elftools.common.utils import struct_parse
from elftools.construct import Construct, Embed, Enum, PrefixedArray, Struct, Switch, ULInt8, ULInt16, ULInt32, Value
from elftools.dwarf.enums import ENUM_DW_LLE
from elftools.dwarf.locationlists import BaseAddressEntry, LocationEntry, entry_translate
from elftools.dwarf.ranges import RangeEntry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytrace.runtime.dwarf.units import Die

EVERYWHERE = 0, 1 << 64
"""The range of a location that holds where no other of its list does, and of one that is no list."""


class Located(NamedTuple):
    """Where something is (a DWARF expression) while code of ``low <= address < high`` runs."""

    low: int
    high: int
    expression: bytes


def ranges(die: Die) -> list[tuple[int, int]]:
    """Start and end of the code of an entry; empty when it has none."""
    if "DW_AT_ranges" not in die:
        low, high = low_high(die)
        return [(low, high)] if high > low else []
    unit = owner = die.cu
    at = die.number("DW_AT_ranges")
    if unit.version < 5 and unit.skeleton is not None:
        # GNU split units: the ranges are in the binary, and the skeleton says where those of the unit begin.
        owner = unit.skeleton
        at += owner.top.number("DW_AT_GNU_ranges_base")
    code, base = [], unit.low
    for entry in owner.dwarfinfo.ranges.get_range_list_at_offset(at, owner):
        if not isinstance(entry, RangeEntry):
            base = entry.base_address
            continue
        start = 0 if entry.is_absolute else base
        if entry.end_offset > entry.begin_offset:
            code.append((start + entry.begin_offset, start + entry.end_offset))
    return code


def low_high(die: Die) -> tuple[int, int]:
    """Start and end of code: ``DW_AT_high_pc`` is an address, or since DWARF 4 a distance from ``DW_AT_low_pc``."""
    low = die.address("DW_AT_low_pc")
    if low is None:
        return 0, 0
    high = die.address("DW_AT_high_pc")
    return low, high if high is not None else low + die.number("DW_AT_high_pc")


def locations(die: Die) -> list[Located]:
    """Where ``DW_AT_location`` says something is; empty without the attribute."""
    value, unit = die.value("DW_AT_location"), die.cu
    if value is None:
        return []
    if not isinstance(value, int):
        return [Located(*EVERYWHERE, bytes(value))]
    if unit.dwarfinfo.split and unit.version < 5:
        return list(_located(_split_entries(die, value), unit.low))
    return list(_located(unit.dwarfinfo.locations.get_location_list_at_offset(value, die), unit.low))


def _located(entries: Iterable[object], base: int) -> Iterator[Located]:
    for entry in entries:
        if isinstance(entry, BaseAddressEntry):
            base = entry.base_address
        elif isinstance(entry, LocationEntry):
            start = 0 if entry.is_absolute else base
            expression = bytes(entry.loc_expr)
            if entry.begin_offset < 0:
                yield Located(*EVERYWHERE, expression)
            else:
                yield Located(start + entry.begin_offset, start + entry.end_offset, expression)


def _split_entries(die: Die, at: int) -> list[object]:
    section = die.dwarfinfo.debug_loc_sec
    assert section is not None
    entries = struct_parse(_split_list(), section.stream, at)
    return [entry_translate[entry.entry_type](entry, die.cu) for entry in entries]


@cache
def _split_list() -> Construct:
    """Reader of ``.debug_loc.dwo`` as GNU tools wrote it before DWARF 5, which pyelftools 0.33 does not know.

    The kinds are those of DWARF 5, but distances have 4 bytes and lengths of expressions 2.
    """
    expression = PrefixedArray(ULInt8("loc_expr"), ULInt16(""))
    kinds = {
        "DW_LLE_end_of_list": Struct(""),
        "DW_LLE_base_addressx": Struct("", ULEB128("index")),
        "DW_LLE_startx_endx": Struct("", ULEB128("start_index"), ULEB128("end_index"), expression),
        "DW_LLE_startx_length": Struct("", ULEB128("start_index"), ULInt32("length"), expression),
        "DW_LLE_offset_pair": Struct("", ULInt32("start_offset"), ULInt32("end_offset"), expression),
    }
    return RepeatUntilExcluding(
        lambda entry, _: entry.entry_type == "DW_LLE_end_of_list",
        Struct(
            "entry",
            StreamOffset("entry_offset"),
            Enum(ULInt8("entry_type"), **ENUM_DW_LLE),
            Embed(Switch("", lambda context: context.entry_type, kinds)),
            # Where entries lie is part of what pyelftools makes of them.
            Value("entry_length", lambda _: 0),
        ),
    )
