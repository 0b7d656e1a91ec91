"""Split DWARF: the units that ``-gsplit-dwarf`` leaves in ``.dwo`` files, or in a ``.dwp`` package of them.

The binary keeps a *skeleton* of each: which code it is about, addresses, source lines, and the name and id of the unit
in the other file. That one has what functions, parameters and types are called; it is opened when a question needs it.

``dwp`` and ``llvm-dwp`` pack the ``.dwo`` files of a program; an index of the package finds, by a hash of signatures,
which part of each section belongs to a unit.

Source: the DWARF 5 standard, 3.1.2, 3.1.3, 7.3.2 and 7.3.5; for DWARF 4 https://gcc.gnu.org/wiki/DebugFission, and for
version 2 of packages https://gcc.gnu.org/wiki/DebugFissionDWP.
"""

from __future__ import annotations

import os
import struct
from functools import partial
from typing import TYPE_CHECKING

from elftools.common.exceptions import DWARFError

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.dwarf.sections import FileSections, SectionParts
from pytrace.runtime.dwarf.units import COMPLAINTS, Unit, UnitTable, explained
from pytrace.runtime.elf.file import ElfFile, quoted
from pytrace.runtime.machine.procfs import normalized, resolved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

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
            (known,) = struct.unpack_from("<Q", self._data, 16 + 8 * slot)
            (row,) = struct.unpack_from("<I", self._data, 16 + 8 * self._slots + 4 * slot)
            if not row:
                return None
            if known == signature:
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


def split_name(unit: Unit) -> str:
    """Name of the file that a skeleton stands for; empty for a unit that is whole."""
    # Before DWARF 5 headers have no unit type.
    if unit.header.get("unit_type", "DW_UT_compile") not in ("DW_UT_compile", "DW_UT_skeleton"):
        return ""
    return unit.top.text("DW_AT_dwo_name") or unit.top.text("DW_AT_GNU_dwo_name")


def _identity(unit: Unit) -> int | None:
    """The id that a skeleton and its unit share: in the header since DWARF 5, an attribute before."""
    if unit.dwo_id is not None:
        return unit.dwo_id
    return unit.top.number("DW_AT_GNU_dwo_id") if "DW_AT_GNU_dwo_id" in unit.top else None


def _unit_of(table: UnitTable, identity: int) -> Unit | None:
    return next((unit for unit in table if _identity(unit) == identity), None)


class SplitUnits:
    """Finds the units that the skeletons of one file stand for.

    *beside* are the files that packages and ``.dwo`` files may lie beside: the binary, and its debug file. *folders*
    are those of ``--debuginfo``; *root* is put before absolute paths (``/proc/PID/root``).
    """

    def __init__(self, beside: Iterable[str], folders: Iterable[str] = (), root: str = "") -> None:
        self._beside = tuple(dict.fromkeys(beside))
        self._folders = tuple(folder.removeprefix("+") for folder in folders)
        self._root = root
        self._units: dict[Unit, Unit | None] = {}
        self._tables: dict[str, UnitTable | None] = {}
        self._packages: list[Package] | None = None
        self.opened: dict[str, None] = {}
        self.problems: dict[str, None] = {}

    def whole(self, unit: Unit) -> Unit | None:
        """The unit with what a skeleton stands for, a whole unit itself; None when its file is not there.

        Why it is not there is then in :attr:`problems`. Files that were looked for are in :attr:`opened`.
        """
        name = split_name(unit)
        if not name:
            return unit
        if unit not in self._units:
            whole = self._units[unit] = self._find(unit, name)
            if whole is not None:
                whole.skeleton = unit
        return self._units[unit]

    def forget(self) -> None:
        """Let go of all units that were read; the skeletons that they are known by go with them."""
        self._units.clear()
        self._tables.clear()
        self._packages = None

    def _find(self, unit: Unit, name: str) -> Unit | None:
        identity = _identity(unit)
        if identity is None:
            self.problems[f"{unit.dwarfinfo.path}: a unit names {quoted(name)} and has no id to know it by"] = None
            return None
        for package in self._dwp_files():
            whole = self._reading(package.path, partial(package.unit, identity))
            if whole is not None:
                return whole
        stale = ""
        for path in self._places(unit, name):
            table = self._table(path)
            if table is None:
                continue
            whole = self._reading(path, partial(_unit_of, table, identity))
            if whole is not None:
                return whole
            stale = stale or path
        self.problems[_complaint(unit, name, stale)] = None
        return None

    def _reading(self, path: str, look: Callable[[], Unit | None]) -> Unit | None:
        """The unit that *look* finds in a file; None in a damaged one, and the search goes on in other files."""
        try:
            return look()
        except TraceError as error:
            self.problems[error.message] = None
        except COMPLAINTS as error:
            self.problems[f"{path}: its DWARF cannot be read: {quoted(explained(error))}"] = None
        return None

    # ---- .dwo files

    def _places(self, unit: Unit, name: str) -> Iterator[str]:
        """Where a ``.dwo`` file may be, each place once."""
        compiled_in = unit.top.text("DW_AT_comp_dir")
        base = os.path.basename(name)
        whole = name if name.startswith("/") or not compiled_in else f"{compiled_in}/{name}"
        paths = [f"{self._root}{whole}"] if whole.startswith("/") else []
        folders = [os.path.dirname("".join(resolved(path))) for path in self._beside]
        for folder in folders:
            paths += [f"{folder}/{name}" if not name.startswith("/") else "", f"{folder}/{base}"]
        for entry in self._folders:
            inside = [f"{self._root}{entry}"] if entry.startswith("/") else [f"{one}/{entry}" for one in folders]
            paths += [f"{one}/{path.removeprefix('/')}" for one in inside for path in (whole, name, base)]
        yield from dict.fromkeys(normalized(path) for path in paths if path)

    def _table(self, path: str) -> UnitTable | None:
        if path not in self._tables:
            sections = self._open(path)
            self._tables[path] = UnitTable(sections, split=True) if sections is not None else None
        return self._tables[path]

    def _open(self, path: str) -> FileSections | None:
        self.opened[path] = None
        try:
            return FileSections(ElfFile.open(path), split=True)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self.problems[f"{path} cannot be read: {error.strerror}"] = None
        except TraceError as error:
            self.problems[error.message] = None
        return None

    # ---- packages

    def _dwp_files(self) -> list[Package]:
        if self._packages is None:
            self._packages = []
            for path in self._dwp_places():
                sections = self._open(path)
                if sections is not None:
                    try:
                        self._packages.append(Package(sections))
                    except COMPLAINTS as error:
                        self.problems[f"{path}: it cannot be read as a package: {explained(error)}"] = None
        return self._packages

    def _dwp_places(self) -> Iterator[str]:
        paths = []
        for path in self._beside:
            real = "".join(resolved(path))
            folder, base = os.path.split(real)
            paths += [f"{path}.dwp", f"{real}.dwp", f"{real.removesuffix('.debug')}.dwp"]
            for entry in self._folders:
                inside = f"{self._root}{entry}" if entry.startswith("/") else f"{folder}/{entry}"
                paths += [f"{inside}/{base}.dwp", f"{inside}/{base.removesuffix('.debug')}.dwp"]
        yield from dict.fromkeys(normalized(path) for path in paths)


def _complaint(unit: Unit, name: str, stale: str) -> str:
    owner, source = unit.dwarfinfo.path, quoted(unit.top.text("DW_AT_name"))
    what = f"the debug information of {source}" if source else "debug information"
    if stale:
        stale = quoted(stale)
        return f"{owner}: {what} should be in {stale}, but that file is of another build (its id is a different one)"
    folder = quoted(unit.top.text("DW_AT_comp_dir")) or "no folder"
    return f"{owner}: {what} is in {quoted(name)}, which does not exist (compiled in {folder})"
