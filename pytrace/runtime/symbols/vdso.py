"""The code that the kernel maps into every process (``linux-vdso.so.1``), read from this process's own memory."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from pytrace.runtime.elf import ElfFile
from pytrace.runtime.user_binary import Binary

_ROW = re.compile(rb"(?m)^([0-9a-f]+)-([0-9a-f]+) .*\[vdso\]$")


@cache
def vdso_image() -> Binary | None:
    """The vdso of this machine; None where there is none. A 32-bit process has another one, which is not read."""
    row = _ROW.search(Path("/proc/self/maps").read_bytes())
    if row is None:
        return None
    start, end = int(row[1], 16), int(row[2], 16)
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        memory.seek(start)
        data = memory.read(end - start)
    return Binary(ElfFile(data, "[vdso]"))
