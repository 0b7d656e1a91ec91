"""Where addresses lie in what was linked."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
from pathlib import Path

import pytest

from pytrace.runtime.binaries.user_binary import Binary
from pytrace.runtime.elf.file import ElfFile, Segment, parse_notes
from pytrace.runtime.host.kallsyms import Kallsyms
from pytrace.runtime.host.procfs import Mapping
from pytrace.runtime.symbols import image_places
from pytrace.runtime.symbols.image_places import ImagePlace, KernelImages, replaced
from pytrace.runtime.symbols.symbolizer import Symbolizer
from tests.support.compile import compiled

TEXT = """
#include <stdio.h>
int place(int n) { return n; }
int main(void) { printf("%p\\n", (void *)place); fflush(stdout); return getchar(); }
"""


@pytest.mark.parametrize("options", [("-pie", "-fPIE"), ("-no-pie", "-fno-pie")])
def test_a_function_is_at_one_place_in_every_process(tmp_path: Path, options: tuple[str, ...]) -> None:
    path = compiled(tmp_path, "prog", TEXT, "-O0", "-Wl,--build-id", *options)
    binary = Binary.open(str(path))
    linked, build_id = binary.address_of("place"), ElfFile.open(str(path)).build_id
    assert linked is not None
    assert len(build_id) == 40
    symbols = Symbolizer()
    for _ in range(2):
        child = subprocess.Popen([str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        address = int(child.stdout.readline(), 16)
        assert symbols.user_place(child.pid, address + 4) == ImagePlace(build_id, linked + 4)
        assert symbols.user(child.pid, address + 4)[-1].name == "place"
        child.communicate("\n")


def test_a_binary_without_a_build_id(tmp_path: Path) -> None:
    path = compiled(tmp_path, "prog", TEXT, "-O0", "-Wl,--build-id=none")
    child = subprocess.Popen([str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    address = int(child.stdout.readline(), 16)
    linked = Binary.open(str(path)).address_of("place")
    assert linked is not None
    assert Symbolizer().user_place(child.pid, address) == ImagePlace("", linked)
    child.communicate("\n")


def test_unknown_addresses_are_themselves() -> None:
    symbols = Symbolizer()
    assert symbols.user_place(os.getpid(), 0x10) == ImagePlace("", 0x10)
    assert symbols.user_place(1 << 22, 0x1234) == ImagePlace("", 0x1234)
    assert symbols.kernel_place(0x10) == ImagePlace("", 0x10)


def test_the_vdso() -> None:
    libc = ctypes.CDLL(None)
    libc.getauxval.restype = ctypes.c_ulong
    start = libc.getauxval(33)  # AT_SYSINFO_EHDR
    found = Symbolizer().user_place(os.getpid(), start + 0x800)
    assert found.address == 0x800
    assert found.build_id


def _kernel(tmp_path: Path, text: str, modules: str = "") -> Kallsyms:
    (tmp_path / "kallsyms").write_text(text)
    (tmp_path / "modules").write_text(modules)
    return Kallsyms(str(tmp_path / "kallsyms"), str(tmp_path / "modules"))


def test_the_kernel_wherever_it_was_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = struct.pack("<III", 4, 20, 3) + b"GNU\0" + bytes(range(20))
    monkeypatch.setattr(image_places, "_build_id_of_notes", lambda _path: parse_notes(notes)[0][2].hex())
    monkeypatch.setattr(image_places, "_KERNEL_LINKED", {os.uname().machine: 0xFFFFFFFF81000000})
    lines = "{0:016x} T _text\n{1:016x} T work\n{2:016x} T _end\n"
    places = set()
    for moved in (0, 0x2E000000):
        base = 0xFFFFFFFF81000000 + moved
        kallsyms = _kernel(tmp_path, lines.format(base, base + 0x500, base + 0x900))
        places.add(KernelImages().place(kallsyms, base + 0x504))
    assert places == {ImagePlace(bytes(range(20)).hex(), 0xFFFFFFFF81000504)}


def test_modules_and_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = {"/sys/module/ext/notes/.note.gnu.build-id": "ab"}
    monkeypatch.setattr(image_places, "_build_id_of_notes", lambda path: notes.get(path, ""))
    base = 0xFFFFFFFFC0000000
    text = (
        f"{0xFFFFFFFF81000000:016x} T _text\n{base + 0x20:016x} t inside\t[ext]\n"
        f"{base + 0x90000:016x} t bpf_prog_1\t[bpf]\n"
    )
    kallsyms = _kernel(tmp_path, text, f"ext 4096 1 - Live 0x{base:016x}\n")
    images = KernelImages()
    assert images.place(kallsyms, base + 0x24) == ImagePlace("ab", 0x24)
    assert images.place(kallsyms, base + 0x90010).address == 0


def test_notes_of_what_is_not_there(tmp_path: Path) -> None:
    assert image_places._build_id_of_notes(str(tmp_path / "none")) == ""
    (tmp_path / "notes").write_bytes(b"\0" * 11)
    assert image_places._build_id_of_notes(str(tmp_path / "notes")) == ""


SEGMENTS = (
    Segment(0, 0, 0x600, 0x600, executable=False),
    Segment(0x1000, 0x1000, 0x3200, 0x3200, executable=True),
    Segment(0x5000, 0x5000, 0x100, 0x100, executable=False),
    Segment(0x5DD0, 0x6DD0, 0x260, 0x268, executable=False),
)
BASE = 0x7F0000000000


def _of_file(start: int, end: int, offset: int, inode: int = 7) -> Mapping:
    return Mapping(BASE + start, BASE + end, offset, 1, inode, "/app")


def _anonymous(start: int, end: int, path: str = "") -> Mapping:
    return Mapping(BASE + start, BASE + end, 0, 0, 0, path)


def test_memory_that_stands_for_code_of_a_file() -> None:
    """In whole or in part, wherever other parts of the file are; other memory beside a file does not."""
    rows = [_of_file(0, 0x1000, 0), _of_file(0x5000, 0x6000, 0x5000), _of_file(0x6000, 0x7000, 0x5000)]
    whole = _anonymous(0x1000, 0x5000)
    assert replaced(whole, rows, lambda _: SEGMENTS) == _of_file(0x1000, 0x5000, 0x1000)
    # Without its beginning, and a part of what is executed only.
    part = _anonymous(0x2000, 0x3000, "[anon:text]")
    parts = [_of_file(0x1000, 0x2000, 0x1000), _of_file(0x3000, 0x5000, 0x3000), *rows[1:]]
    assert replaced(part, parts, lambda _: SEGMENTS) == _of_file(0x2000, 0x3000, 0x2000)
    # Beside the file, in its data, far away, beside another file; a heap; no segments.
    for other in (_anonymous(0x7000, 0x8000), _anonymous(0x6000, 0x7000), _anonymous(0x10000000, 0x10001000)):
        assert replaced(other, rows, lambda _: SEGMENTS) is None
    assert replaced(_anonymous(0x1000, 0x5000, "[heap]"), rows, lambda _: SEGMENTS) is None
    assert replaced(whole, rows, lambda _: ()) is None
    assert replaced(whole, [], lambda _: SEGMENTS) is None
    assert replaced(_of_file(0x1000, 0x5000, 0x1000), rows, lambda _: SEGMENTS) is None
