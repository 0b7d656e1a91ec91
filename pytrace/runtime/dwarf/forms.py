"""How values of attributes are stored: going past entries without reading them.

pyelftools reads all that lies between two entries, unless the compiler wrote where the next one is (clang does not):
tens of microseconds for each of the hundred thousands of entries that a C++ unit may have. The sizes of most are known
from their abbreviations.

Source: the DWARF 5 standard, 7.5.3 to 7.5.6; https://gcc.gnu.org/wiki/DebugFission.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from elftools.common.exceptions import DWARFError
from elftools.construct import Construct, ConstructError
from elftools.dwarf.enums import DW_FORM_raw2name

from pytrace.runtime.dwarf.elftools_overrides import MODERN
from pytrace.runtime.elf.leb128 import unsigned

if TYPE_CHECKING:
    from elftools.dwarf.abbrevtable import AbbrevTable
    from elftools.dwarf.structs import DWARFStructs

    from pytrace.runtime.dwarf.sections import DebugSection

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
