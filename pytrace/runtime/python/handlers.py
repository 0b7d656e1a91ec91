"""Tables of the handlers of CPython's instructions: 256 addresses, by which each handler goes to the next one.

Handlers are labels in ``_PyEval_EvalFrameDefault`` where CPython is built with computed gotos. Since 3.14 each may be a
function of its own, which ends by a jump to the next one (``--with-tail-call-interp``): the loop calls ``start_frame``,
which the compiler may inline, and the function of the current instruction has its frame in place of that one.
"""

from __future__ import annotations

import re
import struct
from functools import cached_property
from typing import TYPE_CHECKING

from pytrace.runtime.elf.unwind_entries import UnwindEntries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytrace.runtime.elf.file import ElfFile

LOOP = "_PyEval_EvalFrameDefault"
TAIL_CALLS_SINCE = 14
_HANDLERS = 256
FEWEST = 150
"""Handlers in a table that may be another one: those of ``switch`` that follow each other have up to 125."""
_TABLE_BY_LEA = re.compile(rb"[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](....)", re.DOTALL)
"""``lea DISTANCE(%rip), %reg``."""
_TABLE_BY_INDEX = re.compile(
    rb"[\x8b\xff][\x04\x0c\x14\x1c\x24\x2c\x34\x3c][\xc5\xcd\xd5\xdd\xe5\xed\xf5\xfd](....)", re.DOTALL
)
"""``mov ADDRESS(,%reg,8), %reg`` and ``jmp *ADDRESS(,%reg,8)``, in programs at fixed addresses."""
_CALL = re.compile(rb"\xe8(....)", re.DOTALL)
_RELATIVE = 8
"""``R_X86_64_RELATIVE``."""
_MOST_RELOCATIONS = 1 << 20
_MOST_LOOP = 8192
"""Bytes of a loop that has not what the instructions do, and of ``start_frame``."""


class HandlerTables:
    """Finds tables in a binary by the code that refers to them."""

    def __init__(self, file: ElfFile) -> None:
        self._file = file

    def referred(self, start: int, code: bytes) -> Iterator[list[int]]:
        """Tables of addresses of code that code refers to, which begins at an address."""
        candidates = {
            start + match.end() + distance
            for match in _TABLE_BY_LEA.finditer(code)
            for (distance,) in struct.iter_unpack("=i", match[1])
        }
        candidates |= {struct.unpack("=I", match[1])[0] for match in _TABLE_BY_INDEX.finditer(code)}
        for address in sorted(candidates):
            table = self._read(address)
            if table:
                yield table

    def _read(self, address: int) -> list[int]:
        """The addresses in a table; empty when there is none."""
        data = self.data(address, 8 * _HANDLERS)
        if address % 8 or len(data) != 8 * _HANDLERS:
            return []
        words = [word for (word,) in struct.iter_unpack("=Q", data)]
        handlers = [self._relocated.get(address + 8 * index, word) for index, word in enumerate(words)]
        return handlers if all(map(self.executable, handlers)) else []

    def executable(self, address: int) -> bool:
        """Whether there is code at an address."""
        return any(
            one.executable and one.address <= address < one.address + one.file_size for one in self._file.segments
        )

    def data(self, address: int, size: int) -> bytes:
        """Bytes at an address; empty when none are in the file."""
        offset = self._file.file_offset(address)
        return b"" if offset is None else bytes(self._file.view[offset : offset + size])

    @cached_property
    def _relocated(self) -> dict[int, int]:
        """Words that are relocated to addresses of the file itself, by their address."""
        section = self._file.section(".rela.dyn")
        if section is None:
            return {}
        data = self._file.contents(section, 24 * _MOST_RELOCATIONS)
        rows = struct.iter_unpack("=QQq", data[: len(data) // 24 * 24])
        return {offset: addend for offset, kind, addend in rows if kind == _RELATIVE}


def are_functions(file: ElfFile) -> bool:
    """Whether each handler is a function, by unwind tables, which stripped files have as well."""
    symbol = file.any_symbol(LOOP)
    if symbol is None or not 0 < symbol.size < _MOST_LOOP:
        return False
    starts, tables = set(UnwindEntries(file)), HandlerTables(file)
    code = tables.data(symbol.address, symbol.size)
    places = {symbol.address}
    for match in _CALL.finditer(code):
        places.add(symbol.address + match.end() + int.from_bytes(match[1], "little", signed=True))
    found = (table for place in places & starts for table in tables.referred(place, tables.data(place, _MOST_LOOP)))
    return any(len(set(table)) >= FEWEST and starts.issuperset(table) for table in found)
