"""uprobes in libraries that lie uncompressed in an archive, as Android maps them: ``ARCHIVE!/MEMBER:FUNCTION``."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

from tests.support.machine import need
from tests.support.server import Server

PAGE = 4096

RUN = """
import ctypes, mmap, os, sys
path, offset, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
start = offset // 4096 * 4096
map_file = ctypes.CDLL(None).mmap
map_file.restype = ctypes.c_void_p
map_file.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
file = os.open(path, os.O_RDONLY)
# A mapping that can be written gets no probes.
address = map_file(None, 8192, mmap.PROT_READ | mmap.PROT_EXEC, mmap.MAP_PRIVATE, file, start) + offset - start
function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int)(address)
for n in range(times):
    assert function(n, 100) == n + 100
"""
"""Maps the function's page of the archive and calls it, as a linker would have it mapped."""


def archive(path: Path, library: Path, *, compression: int) -> int:
    """A zip file with the library at a page boundary; where its bytes start."""
    with zipfile.ZipFile(path, "w", compression) as file:
        entry = zipfile.ZipInfo("lib/libsample.so")
        entry.compress_type = compression
        head = 30 + len(entry.filename)
        # An extra field of unknown kind fills up to the page.
        entry.extra = (0xD935).to_bytes(2, "little") + (PAGE - head - 4).to_bytes(2, "little") + bytes(PAGE - head - 4)
        file.writestr(entry, library.read_bytes())
    return PAGE


def test_function_in_an_archive(server: Server, programs: Path, tmp_path: Path) -> None:
    need("uprobe")
    from tests.kernel.test_attach import symbols

    apk = tmp_path / "app.apk"
    start = archive(apk, programs / "libsample.so", compression=zipfile.ZIP_STORED)
    offset = start + symbols(programs / "libsample.so")["library_add"]
    (tmp_path / "run.py").write_text(RUN)
    point = f"u:{apk}!/lib/libsample.so:library_add"
    program = f"{point} /pid == cpid/ {{ @ = sum(arg0); @n = count(); @name[probe] = 1; }}"
    command = f"{sys.executable} {tmp_path}/run.py {apk} {offset} 4"
    result = server.run(("-q", "-e", program, "-c", command), timeout=60)
    expected = ["@: 6", "@n: 4", f"@name[uprobe:{apk}!/lib/libsample.so:library_add]: 1"]
    assert sorted(line for line in result.stdout.splitlines() if line) == expected, result


def test_compressed_members_cannot_be_traced(server: Server, programs: Path, tmp_path: Path) -> None:
    apk = tmp_path / "app.apk"
    archive(apk, programs / "libsample.so", compression=zipfile.ZIP_DEFLATED)
    result = server.run(("-e", f"u:{apk}!/lib/libsample.so:library_add {{ }}"), timeout=60)
    assert result.status == 1
    assert "BUG" not in result.stderr
    assert "libsample.so" in result.stderr
    result = server.run(("-e", f"u:{apk}!/lib/nothing.so:library_add {{ }}"), timeout=60)
    assert result.status == 1
    assert "nothing.so" in result.stderr
