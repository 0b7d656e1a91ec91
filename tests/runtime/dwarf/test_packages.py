"""pytrace.runtime.dwarf.packages: indexes made by hand; tests/runtime/dwarf/test_split.py reads those of tools."""

from __future__ import annotations

import struct

import pytest
from elftools.common.exceptions import DWARFError

from pytrace.runtime.dwarf.packages import PackageIndex

INFO, ABBREV = 1, 3


def index(
    *units: tuple[int, int], version: int = 5, slots: int = 8, columns: tuple[int, ...] = (INFO, ABBREV)
) -> PackageIndex:
    """An index of units: signature and start in ``.debug_info``; each has 10 bytes there, 5 in ``.debug_abbrev``."""
    table = [(0, 0)] * slots
    for row, (signature, _) in enumerate(units, 1):
        slot, step = signature & slots - 1, (signature >> 32 & slots - 1) | 1
        while table[slot][1]:
            slot = (slot + step) & slots - 1
        table[slot] = signature, row
    data = struct.pack("<IIII", version, len(columns), len(units), slots)
    data += b"".join(struct.pack("<Q", signature) for signature, _ in table)
    data += b"".join(struct.pack("<I", row) for _, row in table)
    data += struct.pack(f"<{len(columns)}I", *columns)
    data += b"".join(struct.pack("<II", start, row) for row, (_, start) in enumerate(units))
    data += struct.pack("<II", 10, 5) * len(units)
    return PackageIndex(memoryview(data))


@pytest.mark.parametrize("version", [2, 5])
def test_parts_of_a_unit(version: int) -> None:
    made = index((0x1234, 100), (0x5678, 200), version=version)
    assert made.rows(0x1234) == {"info": (100, 10), "abbrev": (0, 5)}
    assert made.rows(0x5678) == {"info": (200, 10), "abbrev": (1, 5)}
    assert made.rows(0x9999) is None
    assert {"info", "abbrev"} < made.cut
    assert ("loc" in made.cut) is (version == 2)
    assert ("rnglists" in made.cut) is (version == 5)


def test_signatures_that_share_a_slot() -> None:
    signatures = [number << 32 | 3 for number in (1, 5, 9, 2, 7)]
    made = index(*((signature, at) for at, signature in enumerate(signatures)))
    assert [(made.rows(signature) or {})["info"][0] for signature in signatures] == [0, 1, 2, 3, 4]
    assert made.rows(11 << 32 | 3) is None


def test_a_full_index_ends_the_search() -> None:
    made = index(*((number, number) for number in range(1, 5)), slots=4)
    assert made.rows(9) is None


def test_a_package_without_an_index() -> None:
    made = PackageIndex(memoryview(b""))
    assert made.rows(1) is None
    assert made.cut == frozenset()


def test_an_index_without_slots() -> None:
    assert index(slots=0, columns=()).rows(1) is None


def test_an_unknown_version() -> None:
    with pytest.raises(DWARFError, match="version 7 of the index of a package is unknown"):
        index(version=7)


def test_a_column_that_is_unknown_is_no_section() -> None:
    assert index((1, 100), columns=(INFO, 99)).rows(1) == {"info": (100, 10), "": (0, 5)}
