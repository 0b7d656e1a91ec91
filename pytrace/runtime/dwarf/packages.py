"""Packages of split units (``.dwp``), which ``dwp`` and ``llvm-dwp`` make of the ``.dwo`` files of a program.

An index finds, by a hash of signatures, which part of each section belongs to a unit. Source: the DWARF 5 standard,
7.3.5; for version 2, of GNU tools, https://gcc.gnu.org/wiki/DebugFissionDWP.
"""

from __future__ import annotations

import struct

from elftools.common.exceptions import DWARFError

from pytrace.runtime.dwarf.sections import FileSections, SectionParts
from pytrace.runtime.dwarf.units import Unit, UnitTable

_COLUMNS = {
    2: {1: "info", 2: "types", 3: "abbrev", 4: "line", 5: "loc", 6: "str_offsets", 7: "macinfo", 8: "macro"},
    5: {1: "info", 3: "abbrev", 4: "line", 5: "loclists", 6: "str_offsets", 7: "macro", 8: "rnglists"},
}
"""Which section a column of an index is about (``DW_SECT_*``), by version."""


class PackageIndex:
    """``.debug_cu_index`` or ``.debug_tu_index``; an empty one for a package without."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.cut: frozenset[str] = frozenset()
        self._slots = 0
        if not len(data):
            return
        # Version 2 has a word for the version, where version 5 has half a word and padding.
        version, columns, self._units, self._slots = struct.unpack_from("<IIII", data)
        version &= 0xFFFF
        if version not in _COLUMNS:
            raise DWARFError(f"version {version} of the index of a package is unknown")
        self._rows_at = 16 + 12 * self._slots
        numbers = struct.unpack_from(f"<{columns}I", data, self._rows_at)
        self._names = [_COLUMNS[version].get(number, "") for number in numbers]
        self.cut = frozenset(name for name in _COLUMNS[version].values())

    def rows(self, signature: int) -> dict[str, tuple[int, int]] | None:
        """Start and size of the parts of a unit by section; None when the package does not have it."""
        if not self._slots:
            return None
        mask = self._slots - 1
        slot, step = signature & mask, (signature >> 32 & mask) | 1
        for _ in range(self._slots):
            (found,) = struct.unpack_from("<Q", self._data, 16 + 8 * slot)
            (row,) = struct.unpack_from("<I", self._data, 16 + 8 * self._slots + 4 * slot)
            if not row:
                return None
            if found == signature:
                return self._parts(row)
            slot = (slot + step) & mask
        return None

    def _parts(self, row: int) -> dict[str, tuple[int, int]]:
        layout = f"<{len(self._names)}I"
        size = 4 * len(self._names)
        starts = struct.unpack_from(layout, self._data, self._rows_at + size * row)
        sizes = struct.unpack_from(layout, self._data, self._rows_at + size * (self._units + row))
        return dict(zip(self._names, zip(starts, sizes, strict=True), strict=True))


class Package:
    """One ``.dwp`` file."""

    def __init__(self, sections: FileSections) -> None:
        self.path = sections.path
        self._sections = sections
        self._units = PackageIndex(sections.index("cu_index").data)
        self._types = PackageIndex(sections.index("tu_index").data)
        self._found_types: dict[int, Unit | None] = {}

    def unit(self, dwo_id: int) -> Unit | None:
        """The compilation unit with an id; None when the package does not have it."""
        rows = self._units.rows(dwo_id)
        if rows is None:
            return None
        return next(iter(self._table(rows, self._units)), None)

    def _type(self, signature: int) -> Unit | None:
        if signature not in self._found_types:
            rows = self._types.rows(signature)
            table = self._table(rows, self._types) if rows is not None else None
            self._found_types[signature] = table.type_unit(signature) if table is not None else None
        return self._found_types[signature]

    def _table(self, rows: dict[str, tuple[int, int]], index: PackageIndex) -> UnitTable:
        parts = SectionParts(self._sections, rows, index.cut)
        return UnitTable(parts, split=True, types=self._type)
