"""Source lines and inlined functions of Go programs, by the tables that their runtime needs (Go 1.18 and later).

Source: ``src/runtime/symtab.go`` and ``symtabinl.go`` of Go (``pcvalue``, ``funcfile``, ``inlineUnwinder``).
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from functools import cached_property
from typing import TYPE_CHECKING

from pytrace.runtime.dwarf.places import Place
from pytrace.runtime.elf import go_functions, go_module
from pytrace.runtime.elf.leb128 import unsigned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytrace.runtime.elf.file import ElfFile
    from pytrace.runtime.elf.go_functions import Layout

_FILE_STEPS, _LINE_STEPS, _TABLES, _UNIT = 20, 24, 28, 32
"""Offsets of what is known of a function: places of its tables of files and lines, number of others, its unit."""
_INLINED_INDEX, _INLINED_TREE = 2, 3
"""``PCDATA_InlTreeIndex``, ``FUNCDATA_InlTree``."""
_OLD_CALL, _NEW_CALL = (20, 12, 16), (16, 4, 8)
"""Size of an entry of the tree, offsets in it of the name and of an instruction at the call (1.18; 1.20)."""
_NOWHERE = 0xFFFFFFFF
_DEEPEST = 64
"""Calls inlined into each other that are followed."""


class GoLines:
    """Functions and lines of the addresses of one program."""

    def __init__(self, file: ElfFile, data: memoryview, layout: Layout) -> None:
        self._file = file
        self._data = data
        self._layout = layout
        self._rows = go_functions.entries(data, layout)
        self._starts = self._rows[:-1:2]
        self._after = layout.flags + 3
        """Offset of the places of further tables in what is known of a function."""
        self._call = _OLD_CALL if layout.flags == go_functions.OLD_FLAGS else _NEW_CALL

    @classmethod
    def read(cls, file: ElfFile) -> GoLines | None:
        """The lines of a program; None if it is not one of Go 1.18 or later, or its table is damaged."""
        found = go_functions.parsed(file)
        try:
            return None if found is None or not found[1].flags else cls(file, *found)
        except struct.error:
            return None

    def frames(self, address: int) -> list[Place]:
        """The functions of an address, inlined ones first; empty when it is not known."""
        try:
            return list(self._frames(address))
        except (struct.error, IndexError):
            return []

    def _frames(self, address: int) -> Iterator[Place]:
        at = bisect_right(self._starts, address - self._layout.text) - 1
        if at < 0 or address - self._layout.text >= self._rows[-1]:
            return
        info, start = self._layout.functions + self._rows[2 * at + 1], self._layout.text + self._starts[at]
        tree = self._tree(info)
        for _ in range(_DEEPEST):
            call = self._inlined(info, tree, start, address)
            if call is None:
                break
            name, inside = call
            yield Place(name, *self._line(info, start, address))
            address = start + inside
        yield Place(self._name(self._word(info + 4)), *self._line(info, start, address))

    def _word(self, at: int) -> int:
        (value,) = struct.unpack_from("<I", self._data, at)
        return int(value)

    def _name(self, offset: int) -> str:
        return self._text(self._layout.names + offset)

    def _text(self, at: int) -> str:
        size = 64
        while True:
            piece = bytes(self._data[at : at + size])
            end = piece.find(b"\0")
            if end >= 0 or len(piece) < size:
                return piece[:end].decode(errors="surrogateescape")
            size *= 4

    # ---- lines

    def _line(self, info: int, start: int, address: int) -> tuple[str, int]:
        number = self._value(self._word(info + _FILE_STEPS), start, address)
        line = self._value(self._word(info + _LINE_STEPS), start, address)
        if number < 0 or line <= 0:
            return "", 0
        name = self._word(self._layout.units + 4 * (self._word(info + _UNIT) + number))
        return ("", 0) if name == _NOWHERE else (self._text(self._layout.files + name), line)

    def _value(self, steps: int, start: int, address: int) -> int:
        """The value of a table at an address: pairs of differences, of which the first has a sign; -1 without one."""
        if not steps:
            return -1
        at, value, reached = self._layout.steps + steps, -1, start
        while True:
            change, at = unsigned(self._data, at)
            if not change and reached != start:
                return -1
            value += -(change >> 1) - 1 if change & 1 else change >> 1
            distance, at = unsigned(self._data, at)
            reached += distance
            if address < reached:
                return value

    # ---- inlined functions

    @cached_property
    def _trees(self) -> int:
        """Address from which the places of trees count; 0 when it is not known."""
        module = go_module.find(self._file, self._layout.address, self._layout.names)
        return 0 if module is None else module.function_data(old=self._call == _OLD_CALL)

    def _tree(self, info: int) -> int | None:
        """Place in the file of a function's tree of inlined calls."""
        tables = self._word(info + _TABLES)
        if self._data[info + self._after - 1] <= _INLINED_TREE or not self._trees:
            return None
        offset = self._word(info + self._after + 4 * (tables + _INLINED_TREE))
        return None if offset == _NOWHERE else self._file.file_offset(self._trees + offset)

    def _inlined(self, info: int, tree: int | None, start: int, address: int) -> tuple[str, int] | None:
        """Name of the innermost function that was inlined at an address, and where in the function its call is."""
        if tree is None or self._word(info + _TABLES) <= _INLINED_INDEX:
            return None
        index = self._value(self._word(info + self._after + 4 * _INLINED_INDEX), start, address)
        if index < 0:
            return None
        size, name, inside = self._call
        at = tree - self._file.base + index * size
        entry = bytes(self._file.view[at : at + size])
        offset, place = (struct.unpack_from("<i", entry, where)[0] for where in (name, inside))
        return self._name(offset), place
