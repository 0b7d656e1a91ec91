"""Private parts of pyelftools that pytrace overrides or uses, all in one place.

pyelftools 0.33 has no hooks for what large and split debug information needs: values that are translated when they are
asked for, entries and units of our own classes, declarations of abbreviations that units share, line programs that are
forgotten again. The classes here build such hooks on its private parts. :data:`PRIVATE` names each of these; a test
fails when one is gone, and ``pyproject.toml`` admits only releases that were tested.

Source: the DWARF 5 standard, 7.5.3 to 7.5.6 and 6.2.4; https://gcc.gnu.org/wiki/DebugFission.
"""

from __future__ import annotations

import re
from io import BytesIO
from typing import TYPE_CHECKING, Any, ClassVar

from elftools.common.exceptions import DWARFError
from elftools.common.utils import struct_parse
from elftools.dwarf.abbrevtable import AbbrevDecl, AbbrevTable
from elftools.dwarf.compileunit import CompileUnit
from elftools.dwarf.die import DIE
from elftools.dwarf.dwarfinfo import DWARFInfo
from elftools.dwarf.structs import DWARFStructs

if TYPE_CHECKING:
    from elftools.construct import Container
    from elftools.dwarf.lineprogram import LineProgram
    from elftools.dwarf.typeunit import TypeUnit


PRIVATE: dict[type[object], tuple[str, ...]] = {
    DWARFStructs: ("_create_dw_form", "_structs_cache"),
    AbbrevTable: ("_abbrev_map", "_parse_abbrev_table"),
    DIE: ("_translate_attr_value",),
    CompileUnit: ("_get_cached_DIE",),
    DWARFInfo: ("_linetable_cache", "_parse_CU_at_offset", "_parse_TU_at_offset", "_parse_line_program_at_offset"),
}
"""The private attributes that the classes of this module lean on."""

MODERN = {"DW_FORM_GNU_addr_index": "DW_FORM_addrx", "DW_FORM_GNU_str_index": "DW_FORM_strx"}
"""Forms of GNU split units, and those of DWARF 5 that mean the same."""

WIDE = b"\xff" * 4
"""The first bytes of the 64-bit format."""

_DECLARATION = re.compile(
    rb"([\x80-\xff]*[\0-\x7f])"
    rb"([\x80-\xff]*[\0-\x7f].(?:(?!\0\0)[\x80-\xff]*[\0-\x7f]"
    rb"(?:\x21[\x80-\xff]*|[\x80-\xff]*(?!\x21))[\0-\x7f])*\0\0)",
    re.DOTALL,
)
"""The code of an abbreviation, and its declaration: tag, flag, pairs of attribute and form (and constant)."""


class Structs(DWARFStructs):
    """Readers of values; pyelftools 0.33 lacks the forms of GNU split units and reads 8 bytes for ``DW_FORM_strx4``."""

    _structs_cache: ClassVar[dict[tuple[bool, int, int, int], Structs]] = {}

    def _create_dw_form(self) -> None:
        super()._create_dw_form()
        forms = self.Dwarf_dw_form
        for name in MODERN:
            forms[name] = self.the_Dwarf_uleb128
        forms["DW_FORM_strx4"] = self.the_Dwarf_uint32


class Abbreviations(AbbrevTable):
    """A table of abbreviations that is read as far as codes are asked for.

    Units that were compiled alike declare the same again and again, and pyelftools takes 0.1 ms to read one of them:
    what has the same bytes is read once.
    """

    def __init__(self, structs: DWARFStructs, data: memoryview, offset: int, known: dict[bytes, Container]) -> None:
        self._data = data
        self._known = known
        super().__init__(structs, BytesIO(), offset)

    def _parse_abbrev_table(self) -> dict[int, AbbrevDecl]:
        self._at = self.offset
        return {}

    def get_abbrev(self, code: int) -> AbbrevDecl:
        while code not in self._abbrev_map:
            match = _DECLARATION.match(self._data, self._at)
            if match is None or match[1] == b"\0":
                raise DWARFError(f"abbreviation {code} is missing")
            self._at = match.end()
            declaration = self._known.get(match[2])
            if declaration is None:
                declaration = struct_parse(self.structs.Dwarf_abbrev_declaration, BytesIO(match[2]))
                self._known[match[2]] = declaration
            number: int = struct_parse(self.structs.the_Dwarf_uleb128, BytesIO(match[1]))
            self._abbrev_map[number] = AbbrevDecl(number, declaration)
        return self._abbrev_map[code]


class DeferredEntry(DIE):
    """An entry whose values stay as they are stored until :meth:`translated` is called: of most entries few are."""

    def _translate_attr_value(self, form: str, raw_value: object) -> object:  # noqa: ARG002 - pyelftools' signature
        return raw_value

    def translated(self, form: str, raw_value: object) -> Any:
        """The meaning of a stored value: the string for an offset in a table of strings, and so on."""
        return super()._translate_attr_value(form, raw_value)


class UnitOfEntries(CompileUnit):
    """A unit that makes its entries itself, by :meth:`entry`."""

    def entry(self, offset: int) -> DIE:
        """The entry at an offset of the section."""
        raise NotImplementedError

    def _get_cached_DIE(self, offset: int) -> DIE:  # noqa: N802 - pyelftools' name
        return self.entry(offset)


class TableOfUnits(DWARFInfo):
    """Debug information that makes its units itself, by :meth:`made_unit`."""

    def made_unit(self, section: str, found: CompileUnit | TypeUnit) -> CompileUnit:
        """The unit for the one that pyelftools *found* in ``.debug_SECTION``."""
        raise NotImplementedError

    def _parse_CU_at_offset(self, offset: int) -> CompileUnit:  # noqa: N802 - pyelftools' name
        return self.made_unit("info", super()._parse_CU_at_offset(offset))

    def _parse_TU_at_offset(self, offset: int) -> Any:  # noqa: N802 - pyelftools' name
        return self.made_unit("types", super()._parse_TU_at_offset(offset))

    def line_program(self, unit: CompileUnit) -> LineProgram | None:
        """The line program of a unit; pyelftools would cache it for good, with all that it decoded."""
        program = self.line_program_for_CU(unit)
        self._linetable_cache.clear()
        return program

    def _parse_line_program_at_offset(self, offset: int, structs: DWARFStructs) -> LineProgram:
        # pyelftools 0.33 takes the unit's format for that of its line table, but assemblers choose one of their own.
        section = self.debug_line_sec
        assert section is not None
        stream = section.stream
        stream.seek(offset)
        wide = stream.read(len(WIDE)) == WIDE
        structs = Structs(True, 64 if wide else 32, structs.address_size, structs.dwarf_version)
        return super()._parse_line_program_at_offset(offset, structs)
