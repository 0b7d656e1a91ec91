"""DWARF of user binaries (and of a kernel image): parameters, source lines, inlined functions.

All addresses are virtual addresses of the file. A function is looked for in the unit that has its code, so few units
are read, and of split ones only their files. ``-gsplit-dwarf`` leaves units in ``.dwo`` files, or in a ``.dwp`` package
of them, whose index finds by a hash of signatures which part of each section belongs to a unit. The binary keeps a
*skeleton* of each: which code it is about, addresses, source lines, and the name and id of the unit in the other file,
which has what functions, parameters and types are called.

Source: the DWARF 5 standard, 3.1.2, 3.1.3, 7.3.2 and 7.3.5; for DWARF 4 https://gcc.gnu.org/wiki/DebugFission, and for
version 2 of packages https://gcc.gnu.org/wiki/DebugFissionDWP.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left, bisect_right
from functools import partial
from typing import TYPE_CHECKING

from elftools.common.exceptions import DWARFError, ELFError
from elftools.construct import ConstructError

from pytrace.base import terminal
from pytrace.core.diagnostics import TraceError
from pytrace.runtime.binaries import debug_files, go_parameters
from pytrace.runtime.binaries.dwarf_lines import Functions, LineTable, Scope, Segment
from pytrace.runtime.binaries.dwarf_parameters import placed_parameters
from pytrace.runtime.binaries.dwarf_types import DwarfTypes, described
from pytrace.runtime.binaries.dwarf_units import Die, FileSections, SectionParts, Unit, UnitTable, ranges
from pytrace.runtime.binaries.elf_file import ElfFile, quoted
from pytrace.runtime.binaries.function_places import Place, Places
from pytrace.runtime.machine.procfs import normalized, resolved

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from pytrace.core.kernel_info import UserParameter
    from pytrace.core.types import Type


_COLUMNS = {
    2: {1: "info", 2: "types", 3: "abbrev", 4: "line", 5: "loc", 6: "str_offsets", 7: "macinfo", 8: "macro"},
    5: {1: "info", 3: "abbrev", 4: "line", 5: "loclists", 6: "str_offsets", 7: "macro", 8: "rnglists"},
}
"""Which section a column of an index is about (``DW_SECT_*``), by version."""

_COMPLAINTS = (
    DWARFError, ELFError, ConstructError, LookupError, ValueError, TypeError, ArithmeticError, AssertionError,
    AttributeError, NotImplementedError, RecursionError, struct.error,
)  # fmt: skip
"""Exceptions of pyelftools for malformed data; references in a cycle end as a RecursionError."""

_LANGUAGE = 0x16
"""``DW_LANG_Go``."""


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


def _split_name(unit: Unit) -> str:
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


def explained(error: BaseException) -> str:
    """One of :data:`_COMPLAINTS` as a message; some have no words of their own."""
    return str(error) or type(error).__name__


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
        name = _split_name(unit)
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
        except _COMPLAINTS as error:
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
                    except _COMPLAINTS as error:
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


_NAMED = {
    "struct": ("DW_TAG_structure_type", "DW_TAG_class_type"),
    "union": ("DW_TAG_union_type",),
    "enum": ("DW_TAG_enumeration_type",),
}


class MissingFileError(Exception):
    """A file that the debug information goes on in is not there; the message is for the user."""


class _Reading:
    """Converts exceptions of pyelftools to a message with the file's name, and collects those about missing files."""

    def __init__(self, path: str, missing: dict[str, None]) -> None:
        self._path = path
        self._missing = missing
        self._step = terminal.detail(f"reading debug information of {path}")

    def __enter__(self) -> None:
        self._step.__enter__()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        self._step.__exit__(None, None, None)
        if isinstance(error, _COMPLAINTS):
            raise TraceError(f"{self._path}: its DWARF cannot be read: {explained(error)}") from error
        if isinstance(error, MissingFileError):
            self._missing[str(error)] = None
            return True
        return False


MOST_READ = 24 << 20
"""Bytes, about, of line tables and functions of units in memory: what stacks needed of them is cached as places."""
_ROW, _EXTENT, _UNIT = 20, 100, 1 << 15
"""Bytes, about, that a row of a line table takes, an entry whose end is known, and a unit."""


def segments(low: int, high: int, function: Scope | None, table: LineTable) -> list[Segment]:
    """The code from *low* to *high* in pieces of one line in one function."""
    inside = list(function.inside()) if function is not None else []
    lines = list(table.between(low, high))
    edges = {low, *(start for start, _, _ in lines), *(edge for row in inside for edge in row[:2] if low < edge < high)}
    starts = sorted(edges)
    scopes: list[Scope | None] = [function] * len(starts)
    for first, end, inner in inside:
        one, other = bisect_left(starts, first), bisect_left(starts, end)
        scopes[one:other] = [inner] * (other - one)
    pieces: list[Segment] = []
    file, line, at = -1, 0, 0
    for start, scope in zip(starts, scopes, strict=True):
        while at < len(lines) and lines[at][0] <= start:
            _, file, line = lines[at]
            at += 1
        if not pieces or pieces[-1][1:] != (scope, file, line):
            pieces.append(Segment(start, scope, file, line))
    return pieces


def _is_go(die: Die) -> bool:
    """True if an entry is from a compiler of Go."""
    return die.cu.top.number("DW_AT_language") == _LANGUAGE


class DebugInfo:
    """The DWARF of one file.

    What is read for stacks is put into *places*. *beside* are further files that split units may lie beside (the binary
    of a debug file), *search* and *root* are as for :func:`debug_files.find`.
    """

    def __init__(
        self, elf: ElfFile, places: Places, beside: Iterable[str] = (), search: Iterable[str] = (), root: str = ""
    ) -> None:
        path = self.path = elf.path
        self._search, self._root = tuple(search), root
        self._elf = elf
        self._sections = FileSections(elf)
        self._units = UnitTable(self._sections, supplement=self._supplement)
        self._split = SplitUnits((path, *beside), self._search, root)
        self._types = DwarfTypes(path, self._reading)
        self._named_types: dict[tuple[str, str], Type | None] = {}
        self._tables: dict[Unit, LineTable] = {}
        self._functions: dict[Unit, Functions] = {}
        self._missing: dict[str, None] = {}
        self._places = places
        self._code: list[tuple[int, int, int]] | None = None
        self._left_out: list[tuple[int, int, int]] | None = None

    @property
    def problems(self) -> list[str]:
        """Files with parts of the debug information that were asked for and are not there, as sentences."""
        return [*self._split.problems, *self._missing]

    @property
    def files(self) -> list[str]:
        """Other files that answers depend on, also those that are not there."""
        return list(self._split.opened)

    def _reading(self) -> _Reading:
        return _Reading(self.path, self._missing)

    def _supplement(self) -> UnitTable:
        link = debug_files.supplement(self._elf, self._search, self._root)
        if link is None:
            raise DWARFError("it refers to a supplementary file and does not name one")
        name, path = link
        if path is None:
            raise MissingFileError(f"{self.path}: its debug information continues in {name}, which does not exist")
        try:
            return UnitTable(FileSections(ElfFile.open(path)))
        except OSError as error:
            problem = f"{self.path}: its debug information continues in {path}, which cannot be read: {error.strerror}"
            raise MissingFileError(problem) from error

    # ---- parameters

    def parameters(self, symbol: str, address: int | None) -> tuple[UserParameter, ...] | None:
        """Parameters of a function and where they are when it is entered; None when DWARF does not have it.

        One that the compiler removed, or that is in registers in pieces, is left out.
        """
        with self._reading():
            die = self._function(symbol, address)
            if die is None:
                return None
            entry = address if address is not None else ranges(die)[0][0]
            if _is_go(die):
                return tuple(go_parameters.parameters(die, entry, self._types))
            return tuple(placed_parameters(die, entry, symbol, self._elf.machine, self._types))
        return None

    def result(self, symbol: str, address: int | None) -> Type | None:
        """Type of a function's result; None when DWARF does not have the function, ``VOID`` when it returns nothing."""
        with self._reading():
            die = self._function(symbol, address)
            return None if die is None else self._types.of(described(die, "DW_AT_type"))
        return None

    def go_results(self, symbol: str, address: int | None) -> tuple[UserParameter, ...]:
        """The results of a function of Go when it returns; empty when it has none, or is not known."""
        with self._reading():
            die = self._function(symbol, address)
            return () if die is None or not _is_go(die) else tuple(go_parameters.results(die, self._types))
        return ()

    def _function(self, symbol: str, address: int | None) -> Die | None:
        if address is None:
            return next((die for unit in self._units if (die := self._named(unit, symbol))), None)
        unit = self._unit_at(address)
        if unit is None:
            return None
        die = self._covering(unit, address)
        if die is not None and address in {low for low, _ in ranges(die)}:
            return die
        return self._named(unit, symbol)

    def _named(self, unit: Unit, name: str) -> Die | None:
        for die in self._functions_of(unit):
            if name in (_linkage_name(die), _name(die)):
                return die
        return None

    # ---- types

    def named_type(self, kind: str, name: str) -> Type | None:
        """The ``struct``, ``union`` or ``enum`` (*kind*) of that name; None when DWARF does not define it."""
        if (kind, name) not in self._named_types:
            self._named_types[kind, name] = self._find_type(kind, name)
        return self._named_types[kind, name]

    def _find_type(self, kind: str, name: str) -> Type | None:
        tags = _NAMED[kind]
        with self._reading():
            if not self._mentions(name):
                return None
            for unit in self._units:
                whole = self._split.whole(unit)
                for die in whole.top.children(lambda shape: shape.tag in tags) if whole is not None else ():
                    if "DW_AT_declaration" not in die and die.text("DW_AT_name") == name:
                        return self._types.type(die)
        return None

    def _mentions(self, name: str) -> bool:
        """True if a name is anywhere in the debug information, where that can be told without reading units: looking
        through all units of a large library for a type that it does not have takes seconds.
        """
        sections = [self._sections]
        if self._sections.index("addr").data:
            return True  # units may be split
        link = debug_files.supplement(self._elf, self._search, self._root)
        if link is not None:
            if link[1] is None:
                return True
            try:
                sections.append(FileSections(ElfFile.open(link[1])))
            except OSError:
                return True  # reading the units reports it
        text = name.encode(errors="surrogateescape") + b"\0"
        return any(text in bytes(of.section(part).data) for of in sections for part in ("str", "info", "types"))

    # ---- source lines

    def addresses(
        self, file: str, line: int, column: int | None, start: Callable[[int], int | None] = lambda _: None
    ) -> list[int]:
        """Where the code of a source line starts: the first statement in each function that has it, in order.

        *file* is a path or its end (``main.c``, ``src/main.c``); *column* narrows the line to one statement. *start*
        knows where the function of an address starts when DWARF does not (a split unit that is not there).
        """
        starts: dict[object, int] = {}
        with self._reading():
            for unit in self._units:
                table = self._lines(unit)
                numbers = {number for number, name in enumerate(table.files) if _same_file(name, file)}
                for row in table.rows(line, numbers) if numbers else ():
                    if row.statement and (column is None or row.column == column):
                        die = self._covering(unit, row.address)
                        # A function may be in several pieces; what no function has stands for itself.
                        owner = (die.cu, die.offset) if die is not None else start(row.address) or row
                        starts[owner] = min(starts.get(owner, row.address), row.address)
        return sorted(set(starts.values()))

    def line_of(self, address: int) -> tuple[str, int]:
        """Source file and line of an address; empty and 0 when they are not known."""
        with self._reading():
            unit = self._unit_at(address)
            return self._lines(unit).place(address) if unit is not None else ("", 0)
        return "", 0

    def _lines(self, unit: Unit) -> LineTable:
        table = self._tables.get(unit)
        if table is None:
            table = self._tables[unit] = LineTable(unit)
        return table

    # ---- functions of an address

    def frames(self, address: int) -> list[Place]:
        """The functions of an address: inlined ones first, the function itself last; empty when it is not known.

        One place with an empty function where only the line is known: of assembly, and where the file with the rest is
        not there.
        """
        for _ in self.reading(address):
            pass
        places = self._places.find(address)
        if places is None:
            file, line = self.line_of(address)
            return [Place("", file, line)] if line else []
        return places

    def reading(self, address: int) -> Iterator[None]:
        """Read what :meth:`frames` needs for an address, in steps of some milliseconds."""
        if self._places.knows(address):
            return
        if self._weight() > MOST_READ:
            self._forget()
        with self._reading():
            row = yield from self._row_at(address)
            if row is not None:
                yield from self._read_piece(row, address)
        if self._split.opened or self._missing:
            # Files that come, go and change by themselves.
            self._places.forget_kept()

    def _read_piece(self, row: tuple[int, int, int], address: int) -> Generator[None, None, None]:
        first, end, start = row
        unit = self._units.unit(start)
        try:
            functions, table = self._functions_of(unit), self._lines(unit)
            yield from functions.reading()
            yield from table.reading()
            low, high, scope = functions.around(address)
            low, high = max(low, first), min(high, end)
            self._places.add(low, high, segments(low, high, scope, table), table)
        except _COMPLAINTS:
            # What was read in part shall not be taken for the whole.
            self._functions.pop(unit, None)
            self._tables.pop(unit, None)
            raise

    def _functions_of(self, unit: Unit) -> Functions:
        known = self._functions.get(unit)
        if known is None:
            known = self._functions[unit] = Functions(self._split.whole(unit))
        return known

    def _covering(self, unit: Unit, address: int) -> Die | None:
        return self._functions_of(unit).covering(address)

    # ---- units

    def _weight(self) -> int:
        """About how many bytes the units that were read take."""
        rows = sum(map(len, self._tables.values())) + sum(map(len, self._functions.values()))
        known = sum(functions.known for functions in self._functions.values())
        return _ROW * rows + _EXTENT * known + _UNIT * len(self._functions)

    def _forget(self) -> None:
        """Let go of all units that were read."""
        self._units = UnitTable(self._sections, supplement=self._supplement)
        self._split.forget()
        self._functions.clear()
        self._tables.clear()

    def _unit_at(self, address: int) -> Unit | None:
        """The unit of an address."""
        steps = self._row_at(address)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return None if end.value is None else self._units.unit(end.value[2])

    def _row_at(self, address: int) -> Generator[None, None, tuple[int, int, int] | None]:
        """Start, end and unit of code: by ``.debug_aranges``, else by asking the units that it leaves out."""
        if self._code is None:
            self._code = self._units.code
        row = _found(self._code, address)
        if row is None:
            if self._left_out is None:
                yield from self._find_left_out(self._code)
            row = _found(self._left_out or [], address)
        return row

    def _find_left_out(self, code: list[tuple[int, int, int]]) -> Generator[None, None, None]:
        """Find the code of the units that ``.debug_aranges`` does not have (those of clang)."""
        rows = self._places.left_out()
        if rows is None:
            known = {unit for _, _, unit in code}
            rows = []
            for unit in self._units:
                yield
                if unit.cu_offset not in known:
                    rows += [(low, high, unit.cu_offset) for low, high in ranges(unit.top)]
            rows.sort()
            self._places.set_left_out(rows)
        self._left_out = rows


def _found(rows: list[tuple[int, int, int]], address: int) -> tuple[int, int, int] | None:
    """The row whose code has an address, in rows in order of address."""
    at = bisect_right(rows, address, key=lambda row: row[0]) - 1
    return rows[at] if at >= 0 and address < rows[at][1] else None


def _name(die: Die) -> str:
    return described(die, "DW_AT_name").text("DW_AT_name")


def _linkage_name(die: Die) -> str:
    return described(die, "DW_AT_linkage_name").text("DW_AT_linkage_name")


def _same_file(path: str, wanted: str) -> bool:
    return path == wanted or path.endswith(f"/{wanted.removeprefix('./')}")
