"""Lists of address ranges and of locations, in the forms before and since DWARF 5 and of GNU split units.

Source: the DWARF 5 standard, 7.28 and 7.29; DWARF 4, 2.6.2 and 2.17.3; for ``.debug_loc.dwo`` before DWARF 5
https://gcc.gnu.org/wiki/DebugFission.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pytrace.runtime.dwarf_constants import At, Form
from pytrace.runtime.dwarf_forms import DwarfError, uleb128
from pytrace.runtime.dwarf_units import Die, Unit

EVERYWHERE = 0, 1 << 64
"""The range of a location that holds where no other of its list does, and of one that is no list."""

_EXPRESSIONS = frozenset((Form.EXPRLOC, Form.BLOCK, Form.BLOCK1, Form.BLOCK2, Form.BLOCK4))


class Located(NamedTuple):
    """Where something is (a DWARF expression) while code of ``low <= address < high`` runs."""

    low: int
    high: int
    expression: bytes


def ranges(die: Die) -> list[tuple[int, int]]:
    """Start and end of the code of an entry; empty when it has none."""
    form, value = die.values.get(At.RANGES, (0, 0))
    if not form:
        low, high = low_high(die)
        return [(low, high)] if high > low else []
    unit = die.unit
    if unit.version >= 5:
        found = [(low, high) for low, high, _ in _entries(unit, "rnglists", form, value, located=False)]
    else:
        found = list(_old_ranges(unit, value))
    return [(low, high) for low, high in found if high > low]


def low_high(die: Die) -> tuple[int, int]:
    """``DW_AT_low_pc`` and the end that ``DW_AT_high_pc`` gives (an address, or a distance since DWARF 4)."""
    low = die.address(At.LOW_PC)
    if low is None:
        return 0, 0
    high = die.address(At.HIGH_PC)
    return low, high if high is not None else low + die.number(At.HIGH_PC)


def locations(die: Die) -> list[Located]:
    """Where ``DW_AT_location`` says something is; empty without the attribute."""
    form, value = die.values.get(At.LOCATION, (0, 0))
    if not form:
        return []
    if form in _EXPRESSIONS:
        return [Located(*EVERYWHERE, value)]
    if die.unit.version >= 5:
        return [Located(*entry) for entry in _entries(die.unit, "loclists", form, value, located=True)]
    if die.unit.split:
        return list(_split_locations(die.unit, value))
    return list(_old_locations(die.unit, value))


# ---- since DWARF 5


# Kinds of entries as `DW_LLE_*` numbers them.
_END, _BASE_INDEX, _INDEXES, _INDEX_LENGTH, _OFFSETS, _DEFAULT, _BASE, _ADDRESSES, _ADDRESS_LENGTH, _VIEWS = range(10)
_AS_LOCATION = {1: _BASE_INDEX, 2: _INDEXES, 3: _INDEX_LENGTH, 4: _OFFSETS, 5: _BASE, 6: _ADDRESSES, 7: _ADDRESS_LENGTH}
"""The same kinds by the numbers of ``DW_RLE_*``."""
_OPERANDS = {
    _BASE_INDEX: "i", _INDEXES: "ii", _INDEX_LENGTH: "il", _OFFSETS: "oo", _DEFAULT: "", _BASE: "a", _ADDRESSES: "aa",
    _ADDRESS_LENGTH: "al", _VIEWS: "ll",
}  # fmt: skip
"""What stands in an entry: numbers of addresses (i), addresses (a), distances from the base (o), lengths (l)."""


def _entries(unit: Unit, section: str, form: int, value: int, *, located: bool) -> Iterator[tuple[int, int, bytes]]:
    """Entries of ``.debug_rnglists`` and ``.debug_loclists``, which differ in what stands behind the addresses."""
    data = unit.table.sections.section(section)
    at = _list_start(unit, data, form, value, At.LOCLISTS_BASE if located else At.RNGLISTS_BASE)
    if at >= len(data):
        raise DwarfError(f"a list lies outside .debug_{section}")
    base = unit.low
    while data[at]:
        kind = data[at] if located else _AS_LOCATION.get(data[at], -1)
        if kind not in _OPERANDS:
            raise DwarfError(f"entry {data[at]} of .debug_{section} is unknown")
        operands, at = _operands(unit, data, at + 1, _OPERANDS[kind], base)
        if kind in (_BASE_INDEX, _BASE):
            (base,) = operands
        if kind in (_BASE_INDEX, _BASE, _VIEWS):
            continue
        low, high = operands or EVERYWHERE
        length, at = uleb128(data, at) if located else (0, at)
        yield low, low + high if _OPERANDS[kind].endswith("l") else high, bytes(data[at : at + length])
        at += length


def _list_start(unit: Unit, data: memoryview, form: int, value: int, base_attribute: At) -> int:
    if form not in (Form.LOCLISTX, Form.RNGLISTX):
        return value
    # In a split file the table of offsets stands behind the section's header.
    base = unit.top.number(base_attribute, 12 if unit.offset_size == 4 else 20)
    place = base + value * unit.offset_size
    return base + int.from_bytes(data[place : place + unit.offset_size], "little")


def _operands(unit: Unit, data: memoryview, at: int, kinds: str, base: int) -> tuple[list[int], int]:
    found = []
    for kind in kinds:
        if kind == "a":
            found.append(int.from_bytes(data[at : at + unit.address_size], "little"))
            at += unit.address_size
            continue
        value, at = uleb128(data, at)
        found.append(unit.address(value) if kind == "i" else base + value if kind == "o" else value)
    return found, at


# ---- before DWARF 5


def _old_ranges(unit: Unit, at: int) -> Iterator[tuple[int, int]]:
    owner = unit.skeleton or unit
    if unit.skeleton is not None:
        # GNU split units: the ranges are in the binary, and the skeleton says where those of the unit begin.
        at += unit.skeleton.top.number(At.GNU_RANGES_BASE)
    data = owner.table.sections.section("ranges")
    for low, high, _ in _pairs(unit, data, at):
        yield low, high


def _old_locations(unit: Unit, at: int) -> Iterator[Located]:
    data = unit.table.sections.section("loc")
    for low, high, behind in _pairs(unit, data, at, expressions=True):
        length = int.from_bytes(data[behind : behind + 2], "little")
        yield Located(low, high, bytes(data[behind + 2 : behind + 2 + length]))


def _pairs(unit: Unit, data: memoryview, at: int, *, expressions: bool = False) -> Iterator[tuple[int, int, int]]:
    """Pairs of addresses from a position on, and the position behind each."""
    base, size, most = unit.low, unit.address_size, (1 << 8 * unit.address_size) - 1
    while at + 2 * size <= len(data):
        first = int.from_bytes(data[at : at + size], "little")
        second = int.from_bytes(data[at + size : at + 2 * size], "little")
        at += 2 * size
        if first == most:
            base = second
            continue
        if not first and not second:
            return
        yield base + first, base + second, at
        if expressions:
            at += 2 + int.from_bytes(data[at : at + 2], "little")
    raise DwarfError("a list of addresses does not end")


def _split_locations(unit: Unit, at: int) -> Iterator[Located]:
    """``.debug_loc.dwo`` as GNU tools wrote it before DWARF 5: addresses by number, distances of 4 bytes."""
    data, base = unit.table.sections.section("loc"), unit.low
    while True:
        kind = data[at]
        at += 1
        if kind == _END:
            return
        if kind == _OFFSETS:
            low, high = (base + int.from_bytes(data[at + n : at + n + 4], "little") for n in (0, 4))
            at += 8
        else:
            index, at = uleb128(data, at)
            low = unit.address(index)
            if kind == _BASE_INDEX:
                base = low
                continue
            if kind == _INDEXES:
                index, at = uleb128(data, at)
                high = unit.address(index)
            elif kind == _INDEX_LENGTH:
                high = low + int.from_bytes(data[at : at + 4], "little")
                at += 4
            else:
                raise DwarfError(f"entry {kind} of .debug_loc.dwo is unknown")
        length = int.from_bytes(data[at : at + 2], "little")
        yield Located(low, high, bytes(data[at + 2 : at + 2 + length]))
        at += 2 + length
