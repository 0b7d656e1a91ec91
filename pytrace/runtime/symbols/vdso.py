"""The code that the kernel maps into every process (``linux-vdso.so.1``), read from this process's own memory."""

from __future__ import annotations

from functools import cache

from pytrace.runtime.binaries.user_binary import Binary
from pytrace.runtime.elf.file import ElfFile
from pytrace.runtime.host import procfs


@cache
def vdso_image() -> Binary | None:
    """The vdso of this machine; None where there is none. A 32-bit process has another one, which is not read."""
    with open("/proc/self/maps", "rb") as file:
        rows = procfs.executable_mappings(file.read())
    row = next((row for row in rows if row.path == "[vdso]"), None)
    if row is None:
        return None
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        memory.seek(row.start)
        data = memory.read(row.end - row.start)
    return Binary(ElfFile(data, "[vdso]"))
