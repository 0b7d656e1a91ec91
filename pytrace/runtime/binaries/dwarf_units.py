"""DWARF on pyelftools: sections found by name and decompressed, units and their entries, ranges and locations.

pyelftools 0.33 knows nothing of the files and packages of split units, of addresses and strings by number without
attributes that say where the tables begin, and of type units in ``.debug_info``; what is private of it is overridden in
`elftools_overrides`. What is not compressed stays in the mapped file: of a library's hundreds of megabytes only those
pages become memory that questions are about. pyelftools reads all that lies between two entries, unless the compiler
wrote where the next one is (clang does not); here the sizes of most values are known from their abbreviations
(`Extents`), and entries are passed over without reading them.

Source: the DWARF 5 standard, 7.3.2 (split units), 7.5.3 to 7.5.6, 7.26 to 7.29; DWARF 4, 2.6.2 and 2.17.3; ``elf(5)``
for ``SHF_COMPRESSED`` (``.zdebug_*`` is the older form of GNU tools); https://gcc.gnu.org/wiki/DebugFission.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable
from functools import cache, cached_property
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

from elftools.common.construct_utils import ULEB128, RepeatUntilExcluding, StreamOffset
from elftools.common.exceptions import DWARFError
from elftools.common.utils import struct_parse
from elftools.construct import (
    Construct,
    ConstructError,
    Container,
    Embed,
    Enum,
    PrefixedArray,
    Struct,
    Switch,
    ULInt8,
    ULInt16,
    ULInt32,
    Value,
)
from elftools.dwarf.die import DIE, AttributeValue
from elftools.dwarf.dwarf_expr import DWARFExprOp, DWARFExprParser
from elftools.dwarf.dwarfinfo import DwarfConfig
from elftools.dwarf.enums import ENUM_DW_LLE, DW_FORM_raw2name
from elftools.dwarf.locationlists import BaseAddressEntry, LocationEntry, LocationListsPair, entry_translate
from elftools.dwarf.ranges import RangeEntry, RangeListsPair

from pytrace.core.diagnostics import TraceError
from pytrace.runtime.binaries.elf_file import SHT_NOBITS, ElfFile, unsigned
from pytrace.runtime.binaries.elftools_overrides import (
    MODERN,
    WIDE,
    Abbreviations,
    DeferredEntry,
    Structs,
    TableOfUnits,
    UnitOfEntries,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from elftools.dwarf.abbrevtable import AbbrevTable
    from elftools.dwarf.compileunit import CompileUnit
    from elftools.dwarf.structs import DWARFStructs
    from elftools.dwarf.typeunit import TypeUnit
    Buffer = bytes | bytearray | memoryview


_ZLIB, _ZSTD = 1, 2
"""``ELFCOMPRESS_ZLIB``, ``ELFCOMPRESS_ZSTD``."""
_CHUNK = 1 << 20
"""Most bytes that are decompressed at once."""
_INPUT = 1 << 16
_MOST_RATIO = 100
"""What debug information becomes by decompression at most, as a multiple; 3 to 10 are usual, and 1,032 possible."""

SHF_GROUP, SHF_COMPRESSED = 1 << 9, 1 << 11

SHF_GROUP, SHF_COMPRESSED = 1 << 9, 1 << 11


class ViewStream:
    """A view of memory to read from like a file, without a copy of all of it; what pyelftools wants of streams."""

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes, fewer at the end."""
        start = self._at
        end = len(self._view) if size < 0 else start + size
        data = bytes(self._view[start:end])
        self._at = start + len(data)
        return data

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to a place: from the start, from here (1) or from the end (2)."""
        base = (0, self._at, len(self._view))[whence]
        if base + offset < 0:
            raise ValueError(f"there is nothing at {base + offset}")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """The place that is read next."""
        return self._at


class DebugSection:
    """A section, or the part of one that belongs to a unit.

    Stands where pyelftools has a ``DebugSectionDescriptor``, which has all contents from the start.
    """

    def __init__(self, name: str, read: Callable[[], Buffer]) -> None:
        self.name = name
        self.address = self.global_offset = 0
        self._read = read

    @cached_property
    def data(self) -> memoryview:
        """The contents; empty for a section that is not there.

        Raises:
            TraceError: it is compressed and damaged, or by an unknown method.
        """
        return memoryview(self._read())

    @cached_property
    def stream(self) -> IO[bytes]:
        """The contents to read from, at any place."""
        return cast(IO[bytes], ViewStream(self.data))

    @property
    def size(self) -> int:
        """Length of the contents."""
        return len(self.data)


class FileSections:
    """The debug sections of one ELF file; with *split*, those whose names end in ``.dwo``."""

    def __init__(self, elf: ElfFile, *, split: bool = False) -> None:
        self.elf = elf
        self.path = elf.path
        self.address_size = 8 if elf.wide else 4
        self._suffix = ".dwo" if split else ""
        self._known: dict[str, DebugSection] = {}
        self._damaged: dict[str, str] = {}

    def section(self, name: str) -> DebugSection:
        """``.debug_NAME``, an empty one when it is not there."""
        return self._section(f"debug_{name}{self._suffix}")

    def index(self, name: str) -> DebugSection:
        """``.debug_NAME`` as it is called in packages too, an empty one when it is not there."""
        return self._section(f"debug_{name}")

    def _section(self, name: str) -> DebugSection:
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = DebugSection(name, lambda: self._find(name))
        return known

    def _find(self, name: str) -> Buffer:
        """The contents; what was wrong with them is not tried again for each question."""
        problem = self._damaged.get(name)
        if problem is not None:
            raise TraceError(problem)
        try:
            return self._read(name)
        except TraceError as error:
            self._damaged[name] = error.message
            raise

    def _read(self, name: str) -> Buffer:
        sections = self.elf.sections
        numbers = [number for number, section in enumerate(sections) if section.name in (f".{name}", f".z{name}")]
        # Object files, and `.dwo` files with them, have each type unit in a section of its own. References between
        # units count from the start of the one that is in no group.
        numbers.sort(key=lambda number: bool(sections[number].flags & SHF_GROUP))
        if len(numbers) == 1:
            return self._contents(numbers[0])
        return b"".join(self._contents(number) for number in numbers)

    def _contents(self, number: int) -> Buffer:
        section = self.elf.sections[number]
        if section.type == SHT_NOBITS:
            return b""
        stored = self.elf.contents(section)
        try:
            if section.flags & SHF_COMPRESSED:
                method, size, at = _compression(stored, self.elf.wide)
            elif section.name.startswith(".z") and bytes(stored[:4]) == b"ZLIB":
                method, size, at = _ZLIB, int.from_bytes(stored[4:12], "big"), 12
            else:
                return stored
            self.elf.check_size(section, size)
            if size > max(_MOST_RATIO * len(stored), _CHUNK):
                raise ValueError(f"{len(stored)} bytes cannot be {size} of debug information")
            return _from_zstd(stored[at:], size) if method == _ZSTD else _from_zlib(stored[at:], size)
        except (zlib.error, ValueError, MemoryError, OverflowError) as error:
            raise TraceError(f"{self.path}: {section.name} cannot be decompressed: {error}") from error


class SectionParts:
    """Parts of the sections of a package that belong to one unit; a section without a row is shared by all units."""

    def __init__(self, whole: FileSections, rows: Mapping[str, tuple[int, int]], cut: frozenset[str]) -> None:
        self.path = whole.path
        self.address_size = whole.address_size
        self._whole = whole
        self._rows = rows
        self._cut = cut

    def section(self, name: str) -> DebugSection:
        """``.debug_NAME`` as far as it belongs to this unit."""
        whole = self._whole.section(name)
        if name not in self._cut:
            return whole
        start, size = self._rows.get(name, (0, 0))
        return DebugSection(name, lambda: whole.data[start : start + size])


def _compression(stored: memoryview, wide: bool) -> tuple[int, int, int]:
    """The method, the size of the contents and where they begin, of an ``Elf64_Chdr`` or ``Elf32_Chdr``."""
    word = 8 if wide else 4
    method, size = int.from_bytes(stored[:4], "little"), int.from_bytes(stored[word : 2 * word], "little")
    if method not in (_ZLIB, _ZSTD):
        raise ValueError(f"the method has the number {method}, which is unknown")
    return method, size, 3 * word


def _from_zlib(data: memoryview, size: int) -> bytearray:
    # No more than the header says: a damaged or malicious one must not fill memory.
    contents, unpacker = bytearray(), zlib.decompressobj()
    for start in range(0, len(data), _INPUT):
        room = size - len(contents)
        if room <= 0 or unpacker.eof:
            break
        contents += unpacker.decompress(data[start : start + _INPUT], room)
    return contents


def _from_zstd(data: memoryview, size: int) -> bytearray:
    """At most *size* bytes of one or more frames; memory is taken as their content needs it, whatever is claimed."""
    import zstandard  # few files have such sections

    contents = bytearray()
    try:
        with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as stream:
            while part := stream.read(min(size - len(contents), _CHUNK)):
                contents += part
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None
    return contents


Step = int | Callable[[int], int]
"""How to get past a value: a number of bytes, or what finds the end of a value that begins at a place."""


_END_OF_TEXT = re.compile(b"\0")


class Shape(NamedTuple):
    """How entries with one abbreviation lie.

    *code*: they say where code is. *sibling* is where in them a 4-byte ``DW_AT_sibling`` lies, or -1.
    """

    tag: str | int
    code: bool
    children: bool
    sibling: int
    steps: tuple[Step, ...]


class Extents:
    """Where the entries of one unit end; *data* is the section, *start* the unit's place in it."""

    def __init__(self, structs: DWARFStructs, abbreviations: AbbrevTable, section: DebugSection, start: int) -> None:
        self._structs = structs
        self._abbreviations = abbreviations
        self._data: memoryview = section.data
        self._stream = section.stream
        self._start = start
        self._shapes: dict[int, Shape] = {}
        self._ends: dict[int, int] = {}
        uleb, block = self._behind_number, self._behind_block
        numbers = ("udata", "sdata", "ref_udata", "strx", "addrx", "loclistx", "rnglistx")
        self._skips: dict[str, Step] = dict.fromkeys((*(f"DW_FORM_{form}" for form in numbers), *MODERN), uleb)
        self._skips |= {"DW_FORM_exprloc": block, "DW_FORM_block": block, "DW_FORM_implicit_const": 0}
        self._skips |= {"DW_FORM_string": self._behind_text, "DW_FORM_indirect": self._behind_indirect}

    @property
    def known(self) -> int:
        """How many entries' ends are remembered."""
        return len(self._ends)

    def shape(self, at: int) -> tuple[Shape | None, int]:
        """How the entry at a place lies, and where its attributes begin; None for the end of a list of entries."""
        code = self._data[at]
        body = at + 1
        if code >= 0x80:
            code, body = unsigned(self._data, at)
        if not code:
            return None, body
        return self._shapes.get(code) or self._make(code), body

    def behind(self, at: int) -> int:
        """Where the entry after the one at a place, and after all that is below that, begins."""
        known = self._ends.get(at)
        if known is not None:
            return known
        opened: list[int] = []
        while True:
            shape, body = self.shape(at)
            if shape is None:
                if opened:
                    self._ends[opened.pop()] = body
                at = body
            elif shape.children and shape.sibling >= 0:
                place = body + shape.sibling
                # Siblings lie further on: a damaged one must not turn this into a circle.
                at = max(self._start + int.from_bytes(self._data[place : place + 4], "little"), body)
            else:
                if shape.children:
                    opened.append(at)
                at = self.past(shape, body)
            if not opened:
                return at

    def past(self, shape: Shape, at: int) -> int:
        """The place after the attributes that begin at a place."""
        for step in shape.steps:
            at = at + step if isinstance(step, int) else step(at)
        return at

    def _make(self, code: int) -> Shape:
        declared = self._abbreviations.get_abbrev(code)
        steps: list[Step] = []
        sibling, code_here = -1, False
        for spec in declared["attr_spec"]:
            step = self.step(spec.form)
            before = [one for one in steps if isinstance(one, int)]
            if spec.name == "DW_AT_sibling" and spec.form == "DW_FORM_ref4" and len(before) == len(steps):
                sibling = sum(before)
            code_here |= spec.name in ("DW_AT_low_pc", "DW_AT_ranges")
            if steps and isinstance(step, int) and isinstance(steps[-1], int):
                steps[-1] += step
            else:
                steps.append(step)
        shape = Shape(declared["tag"], code_here, declared.has_children(), sibling, tuple(steps))
        self._shapes[code] = shape
        return shape

    def step(self, form: str) -> Step:
        """How to get past a value."""
        if form not in self._skips:
            reader = self._structs.Dwarf_dw_form[form]
            if reader is None:
                raise DWARFError(f"values of {form} cannot be read")
            try:
                self._skips[form] = int(reader.sizeof())
            except (ConstructError, NotImplementedError):
                self._skips[form] = lambda at: self._behind_value(reader, at)
        return self._skips[form]

    # ---- values of other sizes

    def _behind_number(self, at: int) -> int:
        while self._data[at] >= 0x80:
            at += 1
        return at + 1

    def _behind_block(self, at: int) -> int:
        if self._data[at] < 0x80:
            return at + 1 + self._data[at]
        size, at = unsigned(self._data, at)
        return at + size

    def _behind_text(self, at: int) -> int:
        match = _END_OF_TEXT.search(self._data, at)
        if match is None:
            raise DWARFError("a string has no end")
        return match.end()

    def _behind_indirect(self, at: int) -> int:
        number, at = unsigned(self._data, at)
        step = self.step(DW_FORM_raw2name[number])
        return at + step if isinstance(step, int) else step(at)

    def _behind_value(self, reader: Construct, at: int) -> int:
        self._stream.seek(at)
        reader.parse_stream(self._stream)
        return int(self._stream.tell())


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
        sections: FileSections | SectionParts,
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
