"""User static tracepoints: the notes that ``<sys/sdt.h>`` leaves in a binary.

Each note has three addresses (the probe, the link-time base, the semaphore) and three texts: provider, name, arguments.
When a binary was prelinked its addresses moved and ``.stapsdt.base`` tells by how much.

Source: https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from pytrace.core.kernel_info import UsdtProbe

if TYPE_CHECKING:
    from pytrace.runtime.elf.file import ElfFile

_NOTE_TYPE = 3


def probes(file: ElfFile) -> list[UsdtProbe]:
    """All static tracepoints of a binary in file order, one for each place."""
    section = file.section(".note.stapsdt")
    if section is None:
        return []
    base = file.section(".stapsdt.base")
    addresses = struct.Struct("<QQQ" if file.wide else "<III")
    found = []
    for owner, kind, body in file.notes(section):
        if owner != b"stapsdt" or kind != _NOTE_TYPE or len(body) < addresses.size:
            continue
        address, link_base, semaphore = addresses.unpack_from(body)
        moved = base.address - link_base if base is not None and link_base else 0
        texts = body[addresses.size :].split(b"\0")
        provider, name, arguments = (text.decode(errors="replace") for text in (*texts, b"", b"", b"")[:3])
        offset = file.file_offset(address + moved)
        if offset is None:
            # The code was dropped (split debug file): nothing is there to attach to.
            continue
        counter = _data_offset(file, semaphore + moved) if semaphore else 0
        found.append(UsdtProbe(file.path, provider, name, address + moved, offset, counter, arguments))
    return found


def _data_offset(file: ElfFile, address: int) -> int:
    """File offset of a semaphore; it lies in ``.probes``, whose segment is writable data."""
    return file.file_offset(address) or 0
