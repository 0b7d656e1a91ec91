"""Procedure linkage table: which library function each stub of a binary jumps to.

A stub's order in the table is that of the relocations for it. Source: the processor supplements of the ELF ABI.
"""

from __future__ import annotations

import struct

from pytrace.runtime.elf.file import EM_AARCH64, EM_X86_64, ElfFile
from pytrace.runtime.elf.symbol_table import Symbol

_STUB = 16
_HEADERS = {EM_X86_64: 16, EM_AARCH64: 32}
"""Bytes before the first stub of ``.plt``; ``.plt.sec`` (stubs with landing pads) has none."""


def stubs(file: ElfFile) -> list[Symbol]:
    """The stubs of a 64-bit binary for the machines in :data:`_HEADERS`; empty for others."""
    header = _HEADERS.get(file.machine)
    relocations, symbols = file.section(".rela.plt"), file.section(".dynsym")
    table = file.section(".plt.sec")
    landing = table is not None
    if table is None:
        table = file.section(".plt")
    if header is None or not file.wide or relocations is None or symbols is None or table is None:
        return []
    if landing:
        header = 0
    strings = bytes(file.contents(file.linked(symbols)))
    entries = bytes(file.contents(symbols))
    found = []
    rows = file.contents(relocations)
    for position, (_, info, _) in enumerate(struct.iter_unpack("<QQq", rows[: len(rows) // 24 * 24])):
        number = info >> 32
        address = table.address + header + position * _STUB
        if not number or address + _STUB > table.address + table.size or number * 24 + 4 > len(entries):
            # IFUNC relocations have no symbol.
            continue
        (at,) = struct.unpack_from("<I", entries, number * 24)
        name = strings[at : strings.find(b"\0", at)].decode(errors="surrogateescape")
        found.append(Symbol(f"{name}@plt", address, _STUB))
    return found
